// Not Boost.Beast's request_parser: it (1.74) takes 32 of the 69 forms that http_head_test.cc has
// refused, among them folded lines, which it joins so that nothing shows them afterwards. The
// checks of those are most of this file, and would remain.
#include "lib/server/http/http_head.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/support/strings.h"

namespace ktx::server {
namespace {

constexpr size_t kMostFields = 100;
constexpr size_t kMostMethod = 32;

bool is_token_char(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

// Control characters but for the tab are in no value.
bool is_value_char(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte == '\t' || (byte >= ' ' && byte != 0x7F);
}

bool is_target_char(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte > ' ' && byte != 0x7F;
}

bool is_host_char(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         std::string_view("-._~%!$&'()*+;=:[]").find(c) != std::string_view::npos;
}

bool all(std::string_view text, bool (*test)(char)) {
  return std::all_of(text.begin(), text.end(), test);
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return out;
}

std::string_view without_blanks(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

HttpFault bad_head(std::string message) {
  return {400, std::move(message)};
}

// "HTTP/1.1"; 505 for other versions.
HttpResult<> read_version(std::string_view text, HttpHead& head) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  const bool form = text.size() == 8 && text.substr(0, 5) == "HTTP/" && digit(text[5]) &&
                    text[6] == '.' && digit(text[7]);
  if (!form) return bad_head("the request line does not end in 'HTTP/1.1'");
  if (text[5] != '1') {
    return HttpFault{505, fmt::format("this server speaks HTTP/1.1, not {}", text)};
  }
  head.minor = text[7] == '0' ? 0 : 1;
  return {};
}

// "/path?query", "http://host/path?query", or "*"; the host of the second is put in `host`.
HttpResult<> read_target(std::string_view target, HttpRequest& request, std::string& host) {
  if (target.empty() || !all(target, is_target_char)) {
    return bad_head("the request line has no valid target");
  }
  if (target.front() != '/' && target != "*") {
    const size_t mark = target.find("://");
    const std::string scheme = lower(target.substr(0, mark));
    if (mark == std::string_view::npos || (scheme != "http" && scheme != "https")) {
      return bad_head("the target of the request is no path");
    }
    target.remove_prefix(mark + 3);
    const std::string_view authority = target.substr(0, target.find_first_of("/?"));
    if (authority.empty() || !all(authority, is_host_char)) {
      return bad_head("the target of the request names no valid host");
    }
    host = authority;
    target.remove_prefix(authority.size());
  }
  const size_t mark = target.find('?');
  const std::string_view path = target.substr(0, mark);
  request.path = path.empty() ? "/" : decode_url(path);
  if (mark != std::string_view::npos) request.query = target.substr(mark + 1);
  return {};
}

HttpResult<> read_request_line(std::string_view line, HttpHead& head, std::string& host) {
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  const std::string_view method = line.substr(0, first);
  if (first == std::string_view::npos || first == last || !is_token(method) ||
      method.size() > kMostMethod) {
    return bad_head(
        "this is no HTTP/1.1 request (a server without --tls-cert takes http://, not https://)");
  }
  head.request.method = method;
  KTX_TRY(read_version(line.substr(last + 1), head));
  return read_target(line.substr(first + 1, last - first - 1), head.request, host);
}

HttpResult<> read_length(const std::string& value, HttpHead& head) {
  const bool digits = !value.empty() && value.size() <= 18 &&
                      all(value, [](char c) { return c >= '0' && c <= '9'; });
  if (!digits) return bad_head("'Content-Length' is no number");
  head.length = std::stoull(value);
  return {};
}

// `codings`: the values of all Transfer-Encoding fields, joined by commas.
HttpResult<> read_codings(const std::string& codings, HttpHead& head) {
  if (head.minor == 0) return bad_head("HTTP/1.0 has no 'Transfer-Encoding'");
  if (codings == "chunked") {
    head.chunked = true;
    return {};
  }
  const size_t comma = codings.rfind(',');
  const std::string_view before = std::string_view(codings).substr(0, comma);
  const bool last_is_chunked =
      comma != std::string::npos &&
      without_blanks(std::string_view(codings).substr(comma + 1)) == "chunked";
  if (last_is_chunked && before.find("chunked") == std::string_view::npos &&
      !without_blanks(before).empty()) {
    return HttpFault{501, "'Transfer-Encoding' other than 'chunked' is not supported"};
  }
  return bad_head("'Transfer-Encoding' must be 'chunked', once; the body has no end else");
}

HttpResult<> read_fields(std::string_view text, HttpHead& head) {
  while (!text.empty()) {
    const size_t end = text.find("\r\n");
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 2);
    if (line.empty()) break;
    if (line.front() == ' ' || line.front() == '\t') {
      return bad_head("a header field goes on in a second line, which HTTP/1.1 does not allow");
    }
    if (!is_field_line(line)) return bad_head("a line of the header is no 'name: value'");
    if (head.request.headers.size() == kMostFields) {
      return HttpFault{431, fmt::format("the header has more than {} fields", kMostFields)};
    }
    const size_t colon = line.find(':');
    head.request.headers.emplace_back(lower(line.substr(0, colon)),
                                      std::string(without_blanks(line.substr(colon + 1))));
  }
  return {};
}

HttpResult<> read_connection(const std::string& value, HttpHead& head) {
  for (const std::string_view item : split(value, ',')) {
    const std::string_view option = without_blanks(item);
    if (option == "close") head.keep_alive = false;
    if (option == "keep-alive" && head.minor == 0) head.keep_alive = true;
  }
  return {};
}

}  // namespace

HeadScan::State HeadScan::look(std::string_view bytes) {
  for (; at_ < bytes.size(); ++at_) {
    const char c = bytes[at_];
    if (c == '\n') {
      if (at_ == 0 || bytes[at_ - 1] != '\r') return State::Wrong;
      if (line_ == 1) {
        // Empty lines in front of a request are left by some clients.
        line_ = 0;
        if (!begun_) continue;
        ++at_;
        return State::Whole;
      }
      line_ = 0;
      continue;
    }
    if (at_ > 0 && bytes[at_ - 1] == '\r') return State::Wrong;
    ++line_;
    if (c == '\r') continue;
    // A method begins; TLS and other protocols do not look like it.
    if (!begun_ && !is_token_char(c)) return State::Wrong;
    begun_ = true;
  }
  return State::More;
}

bool is_token(std::string_view text) {
  return !text.empty() && all(text, is_token_char);
}

bool is_field_line(std::string_view line) {
  const size_t colon = line.find(':');
  return colon != std::string_view::npos && is_token(line.substr(0, colon)) &&
         all(line.substr(colon + 1), is_value_char);
}

HttpResult<HttpHead> read_head(std::string_view text) {
  HttpHead head;
  while (text.substr(0, 2) == "\r\n") text.remove_prefix(2);
  const size_t end = text.find("\r\n");
  if (end == std::string_view::npos) return bad_head("the request has no whole first line");
  std::string target_host;
  KTX_TRY(read_request_line(text.substr(0, end), head, target_host));
  KTX_TRY(read_fields(text.substr(end + 2), head));

  int hosts = 0, lengths = 0, codings = 0;
  std::string coding, expect, connection;
  std::string* host = nullptr;
  std::string length;
  for (auto& [name, value] : head.request.headers) {
    if (name == "host") {
      ++hosts;
      host = &value;
    } else if (name == "content-length") {
      ++lengths;
      length = value;
    } else if (name == "transfer-encoding") {
      coding += (codings++ > 0 ? "," : "") + lower(value);
    } else if (name == "content-encoding") {
      head.coding += (head.coding.empty() ? "" : ",") + lower(value);
    } else if (name == "expect") {
      expect += lower(value);
    } else if (name == "connection") {
      connection += lower(value) + ",";
    }
  }
  if (hosts > 1 || (hosts == 0 && head.minor >= 1)) {
    return bad_head(hosts == 0 ? "the request has no 'Host'"
                               : "the request has more than one 'Host'");
  }
  if (host != nullptr && !all(*host, is_host_char)) return bad_head("'Host' is no name of a host");
  // The target's counts more (RFC 9112, 3.2.2).
  if (!target_host.empty()) {
    if (host == nullptr) {
      head.request.headers.emplace_back("host", target_host);
    } else {
      *host = target_host;
    }
  }
  if (lengths > 1) return bad_head("the request has more than one 'Content-Length'");
  if (lengths > 0 && codings > 0) {
    return bad_head("the request has both 'Content-Length' and 'Transfer-Encoding'");
  }
  if (lengths > 0) {
    KTX_TRY(read_length(length, head));
  }
  if (codings > 0) {
    KTX_TRY(read_codings(coding, head));
  }
  head.keep_alive = head.minor >= 1;
  KTX_TRY(read_connection(connection, head));
  if (head.minor >= 1 && !expect.empty()) {
    if (expect != "100-continue") {
      return HttpFault{417, "'Expect' other than '100-continue' is not supported"};
    }
    head.expects_continue = true;
  }
  return head;
}

}  // namespace ktx::server
