// One request to one address, by libcurl: no redirects, no second try (hub.h).
//
// A hub may be hostile: headers and pages of errors end after so many bytes, and a connection that
// brings next to nothing counts as cut.
#pragma once

#include <curl/curl.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace ktx::tools {

struct ByteRange {
  uint64_t begin = 0, end = 0;  // end: behind the last byte
};

class Transfer {
 public:
  struct Request {
    std::string url;
    std::string token;  // "": none
    std::optional<ByteRange> range;
    long seconds = 0;  // until it counts as cut; 0: as long as bytes come
  };
  // Takes bytes of an answer of 200 or 206; false ends the transfer.
  using Sink = std::function<bool(const Transfer&, std::span<const std::byte>)>;

  Transfer(const Request& request, Sink sink);
  ~Transfer();
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  CURL* handle() const { return curl_; }
  // As libcurl ended it with `code`; CURLE_OK too where a long page of a refusal or a redirect was
  // broken off here, as no more of it is needed.
  CURLcode ended(CURLcode code) const;
  long status() const;
  // "" where the answer has none; names in lower case.
  std::string header(const std::string& name) const;
  // "" where it leads nowhere.
  std::string redirect_url() const;
  std::string problem(CURLcode code) const;

 private:
  static size_t on_header(char* text, size_t size, size_t count, void* self);
  static size_t on_body(char* bytes, size_t size, size_t count, void* self);

  CURL* curl_ = nullptr;
  curl_slist* headers_ = nullptr;
  Sink sink_;
  std::map<std::string, std::string> received_;
  size_t header_bytes_ = 0, page_bytes_ = 0;
  char error_[CURL_ERROR_SIZE] = {};
};

}  // namespace ktx::tools
