#include "tools/ktx-pull/transfer.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "lib/support/strings.h"

namespace ktx::tools {
namespace {

constexpr long kConnectSeconds = 20;
constexpr long kLeastSpeed = 256;   // bytes a second; eight connections share a line
constexpr long kStillSeconds = 30;  // below that: the connection counts as cut
constexpr size_t kMostHeaders = 200;
constexpr size_t kMostHeaderBytes = 1 << 20;
constexpr size_t kMostPageBytes = 64 << 10;  // so that a usual one leaves the connection open

void allow_web_only(CURL* curl) {
#if LIBCURL_VERSION_NUM >= 0x075500
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
#else
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS, static_cast<long>(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
}

}  // namespace

Transfer::Transfer(const Request& request, Sink sink)
    : curl_(curl_easy_init()), sink_(std::move(sink)) {
  if (curl_ == nullptr) throw std::bad_alloc();
  curl_easy_setopt(curl_, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(curl_, CURLOPT_PRIVATE, this);
  curl_easy_setopt(curl_, CURLOPT_ERRORBUFFER, error_);
  curl_easy_setopt(curl_, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl_, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(curl_, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  curl_easy_setopt(curl_, CURLOPT_LOW_SPEED_LIMIT, kLeastSpeed);
  curl_easy_setopt(curl_, CURLOPT_LOW_SPEED_TIME, kStillSeconds);
  curl_easy_setopt(curl_, CURLOPT_USERAGENT, "ktx-pull/" KTX_VERSION);
  curl_easy_setopt(curl_, CURLOPT_HEADERFUNCTION, on_header);
  curl_easy_setopt(curl_, CURLOPT_HEADERDATA, this);
  curl_easy_setopt(curl_, CURLOPT_WRITEFUNCTION, on_body);
  curl_easy_setopt(curl_, CURLOPT_WRITEDATA, this);
  curl_easy_setopt(curl_, CURLOPT_TIMEOUT, request.seconds);
  allow_web_only(curl_);
  if (!request.token.empty()) {
    headers_ = curl_slist_append(headers_, ("Authorization: Bearer " + request.token).c_str());
    curl_easy_setopt(curl_, CURLOPT_HTTPHEADER, headers_);
  }
  if (request.range) {
    const std::string range = fmt::format("{}-{}", request.range->begin, request.range->end - 1);
    curl_easy_setopt(curl_, CURLOPT_RANGE, range.c_str());
  }
}

Transfer::~Transfer() {
  curl_easy_cleanup(curl_);
  curl_slist_free_all(headers_);
}

long Transfer::status() const {
  long status = 0;
  curl_easy_getinfo(curl_, CURLINFO_RESPONSE_CODE, &status);
  return status;
}

CURLcode Transfer::ended(CURLcode code) const {
  return page_bytes_ > kMostPageBytes ? CURLE_OK : code;
}

std::string Transfer::header(const std::string& name) const {
  const auto found = received_.find(name);
  return found == received_.end() ? "" : found->second;
}

std::string Transfer::redirect_url() const {
  const char* url = nullptr;
  curl_easy_getinfo(curl_, CURLINFO_REDIRECT_URL, &url);
  return url == nullptr ? "" : url;
}

std::string Transfer::problem(CURLcode code) const {
  return error_[0] != '\0' ? printable(error_, 200) : curl_easy_strerror(code);
}

size_t Transfer::on_header(char* text, size_t size, size_t count, void* self) {
  Transfer& transfer = *static_cast<Transfer*>(self);
  const std::string_view line(text, size * count);
  transfer.header_bytes_ += line.size();
  if (transfer.header_bytes_ > kMostHeaderBytes) return 0;
  const size_t colon = line.find(':');
  if (line.starts_with("HTTP/")) transfer.received_.clear();  // a proxy's answer came before
  if (colon == line.npos || transfer.received_.size() > kMostHeaders) return size * count;
  std::string name(line.substr(0, colon));
  std::ranges::transform(name, name.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  });
  transfer.received_[name] = std::string(trim(line.substr(colon + 1)));
  return size * count;
}

// Pages of errors and redirects are passed over, and a long one is not waited for.
size_t Transfer::on_body(char* bytes, size_t size, size_t count, void* self) {
  Transfer& transfer = *static_cast<Transfer*>(self);
  const long status = transfer.status();
  if (status != 200 && status != 206) {
    transfer.page_bytes_ += size * count;
    return transfer.page_bytes_ <= kMostPageBytes ? size * count : 0;
  }
  const auto piece = std::as_bytes(std::span(bytes, size * count));
  return transfer.sink_(transfer, piece) ? size * count : 0;
}

}  // namespace ktx::tools
