#include "tools/ktx-pull/hub.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <ctime>
#include <thread>

#include "lib/support/env.h"
#include "lib/support/quantity.h"
#include "lib/support/strings.h"
#include "lib/support/timer.h"

namespace ktx::tools {
namespace {

constexpr size_t kMostBody = 64 << 20;
// The answers to one question have so long, without waits between them; a range has more, for its
// bytes.
constexpr double kMostSeconds = 300, kLeastRangeSpeed = 64 << 10;
// Seconds: all connections that are refused at once are one failure; a short wait is no news.
constexpr double kLeastWait = 0.5, kLongWait = 5;
constexpr const char* kUsualEndpoint = "https://huggingface.co";

// A part of a URL, "" where it has none.
std::string url_part(const std::string& url, CURLUPart part) {
  CURLU* const parsed = curl_url();
  char* text = nullptr;
  std::string out;
  if (curl_url_set(parsed, CURLUPART_URL, url.c_str(), 0) == CURLUE_OK &&
      curl_url_get(parsed, part, &text, CURLU_DEFAULT_PORT) == CURLUE_OK) {
    out = text;
  }
  curl_free(text);
  curl_url_cleanup(parsed);
  return out;
}

std::string origin(const std::string& url) {
  return fmt::format("{}://{}:{}", url_part(url, CURLUPART_SCHEME), url_part(url, CURLUPART_HOST),
                     url_part(url, CURLUPART_PORT));
}

bool is_this_machine(const std::string& url) {
  const std::string host = url_part(url, CURLUPART_HOST);
  return host == "localhost" || host.starts_with("127.") || host == "[::1]";
}

// Each part of a path as a URL has it.
std::string escaped(const std::string& path) {
  std::string out;
  for (const std::string_view part : split(path, '/')) {
    char* const text = curl_easy_escape(nullptr, part.data(), static_cast<int>(part.size()));
    out += fmt::format("{}{}", out.empty() ? "" : "/", text == nullptr ? "" : text);
    curl_free(text);
  }
  return out;
}

bool may_help(const Transfer& transfer, CURLcode code) {
  const long status = transfer.status();
  return code != CURLE_OK || status == 429 || status >= 500;
}

double seconds_to_wait(const Transfer& transfer, int failures) {
  const std::string after = transfer.header("retry-after");
  if (const auto seconds = parse_whole(after, 0, 1 << 30)) {
    return std::max(kLeastWait, static_cast<double>(*seconds));
  }
  const time_t date = after.empty() ? -1 : curl_getdate(after.c_str(), nullptr);
  if (date > 0) return std::max(kLeastWait, static_cast<double>(date - std::time(nullptr)));
  return std::min(30.0, kLeastWait * std::exp2(failures));
}

}  // namespace

double Hub::wait_before_next(const Transfer& transfer, int failures, double waits) const {
  const double seconds = seconds_to_wait(transfer, failures);
  if (seconds >= std::max(kLongWait, waits + 1) && seconds <= kLongestWait) {
    const long status = transfer.status();
    tell(fmt::format("{} gives nothing for now{}; asking again in {:.0f} s", endpoint_,
                     status >= 400 ? fmt::format(" (HTTP {})", status) : "", seconds));
  }
  return seconds;
}

Result<Hub> Hub::open() {
  Hub hub;
  hub.endpoint_ = env("HF_ENDPOINT").value_or(kUsualEndpoint);
  while (hub.endpoint_.ends_with('/')) hub.endpoint_.pop_back();
  const std::string scheme = url_part(hub.endpoint_, CURLUPART_SCHEME);
  const bool plain = url_part(hub.endpoint_, CURLUPART_USER).empty() &&
                     url_part(hub.endpoint_, CURLUPART_QUERY).empty();
  if ((scheme != "https" && scheme != "http") || !plain) {
    return Error{fmt::format("HF_ENDPOINT is '{}'; it takes the address of a hub, such as {}",
                             printable(hub.endpoint_), kUsualEndpoint)};
  }
  hub.secure_ = scheme == "https";
  const std::string token = env("HF_TOKEN").value_or("");
  if (token.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~"
                              "+/=") != token.npos) {
    return Error{"HF_TOKEN has characters that no token has, such as blanks or line ends"};
  }
  hub.token_ = token;
  return hub;
}

std::string Hub::listing_url(const HubModel& model) const {
  return fmt::format("{}/api/models/{}/{}/revision/{}?blobs=true", endpoint_, model.owner,
                     model.name, model.revision.empty() ? "main" : model.revision);
}
std::string Hub::file_url(const HubModel& model, const std::string& commit,
                          const std::string& path) const {
  return fmt::format("{}/{}/{}/resolve/{}/{}", endpoint_, model.owner, model.name, commit,
                     escaped(path));
}

bool Hub::is_own(const std::string& url) const {
  return origin(url) == origin(endpoint_);
}

Transfer::Request Hub::request(const std::string& url) const {
  const bool safe = secure_ || is_this_machine(url);
  return {url, is_own(url) && safe ? token_ : "", std::nullopt};
}

Result<std::string> Hub::redirect(const Transfer& transfer, int hops) const {
  const std::string url = transfer.redirect_url();
  const std::string scheme = url_part(url, CURLUPART_SCHEME);
  const std::string shown = printable(url.substr(0, url.find('?')), 120);
  if (hops >= kMostHops) return Error{fmt::format("{}: redirected too often", shown)};
  if (scheme == "https" || (scheme == "http" && !secure_)) return url;
  return Error{
      fmt::format("{} refers to '{}', which is not followed: it is no https", endpoint_, shown)};
}

Error Hub::refusal(const std::string& what, long status) const {
  const std::string with = token_.empty() ? "HF_TOKEN is not set" : "with HF_TOKEN";
  if (status == 401 || status == 403) {
    return Error{fmt::format(
        "{}: the hub refuses access (HTTP {}, {}): there is no such model, or it is private or "
        "gated; accept its terms at {} and set HF_TOKEN",
        what, status, with, endpoint_)};
  }
  if (status == 404) {
    return Error{
        fmt::format("{}: {} has no such model, revision or file (HTTP 404)", what, endpoint_)};
  }
  if (status == 429) {
    return Error{fmt::format("{}: the hub gives no more for now (HTTP 429, {}); start again later",
                             what, with)};
  }
  return Error{fmt::format("{}: {} answers HTTP {}", what, endpoint_, status)};
}

Result<std::string> Hub::get(const std::string& url, const std::string& what,
                             std::optional<ByteRange> range) const {
  const size_t most = range ? range->end - range->begin : kMostBody;
  const double most_seconds =
      kMostSeconds + (range ? static_cast<double>(most) / kLeastRangeSpeed : 0);
  std::string at = url;
  int hops = 0, failures = 0;
  double spent = 0;
  while (true) {
    std::string body;
    Transfer::Request asked = request(at);
    asked.range = range;
    asked.seconds = std::max(1L, std::lround(most_seconds - spent));
    const Timer timer;
    const Transfer transfer(asked, [&](const Transfer&, std::span<const std::byte> bytes) {
      const size_t room = most - body.size();
      body.append(reinterpret_cast<const char*>(bytes.data()), std::min(room, bytes.size()));
      return bytes.size() <= room;
    });
    const CURLcode code = transfer.ended(curl_easy_perform(transfer.handle()));
    spent += timer.seconds();
    const long status = transfer.status();
    // A hub without ranges sends the whole file: enough of it is enough.
    const bool whole = code == CURLE_OK || (range && body.size() == most);
    if (whole && (status == 200 || status == 206)) return body;
    if (code == CURLE_OK && !transfer.redirect_url().empty()) {
      at = KTX_TRY(redirect(transfer, hops++));
      continue;
    }
    if (code == CURLE_WRITE_ERROR && body.size() == most) {
      return Error{fmt::format("{}: the hub's answer has more than {}", what, human_bytes(most))};
    }
    const bool again =
        may_help(transfer, code) && ++failures < kMostFailures && spent < most_seconds;
    const double wait = again ? wait_before_next(transfer, failures - 1) : 0;
    if (!again || wait > kLongestWait) {
      if (code == CURLE_OK) return refusal(what, status);
      return Error{fmt::format("{}: cannot reach {}: {}", what, endpoint_, transfer.problem(code))};
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(wait));
    at = url;
    hops = 0;
  }
}

}  // namespace ktx::tools
