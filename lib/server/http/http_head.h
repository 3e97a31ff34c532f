// Parses the head of a request strictly by RFC 9110 and 9112: two readers of the same bytes (a
// proxy in front, this server) must never see different requests.
//
//   HeadScan scan;
//   switch (scan.look(bytes)) {...}            // as they arrive: More, Whole, Wrong
//   HttpResult<HttpHead> head = read_head(bytes.substr(0, scan.size()));
//
// Refused: bare CR or LF, folded lines, blanks before the colon, no Host or two, a
// Content-Length that is not a number or is repeated, a length together with a transfer coding,
// and codings other than `chunked`. Safe for any bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lib/server/http/http_server.h"
#include "lib/support/result.h"

namespace ktx::server {

// Why a connection ends without its request being taken.
struct HttpFault {
  int status = 400;
  std::string message;
};
template <class T = void>
using HttpResult = Result<T, HttpFault>;

struct HttpHead {
  HttpRequest request;  // without body and client
  int minor = 1;        // HTTP/1.minor
  bool keep_alive = true;
  bool expects_continue = false;
  bool chunked = false;
  std::string coding;   // Content-Encoding, in lower case; several are joined by commas
  uint64_t length = 0;  // of the body, when not chunked
};

// Finds the end of a head in bytes that arrive piece by piece, each looked at once.
class HeadScan {
 public:
  enum class State { More, Whole, Wrong };
  // `bytes`: all since the head's first one.
  State look(std::string_view bytes);
  // The head's bytes with its empty line; Whole only.
  size_t size() const { return at_; }
  // Something other than empty lines has come.
  bool begun() const { return begun_; }

 private:
  size_t at_ = 0;
  size_t line_ = 0;  // bytes in this line
  bool begun_ = false;
};

HttpResult<HttpHead> read_head(std::string_view text);

// A name and its value as they may stand in a head or a trailer.
bool is_field_line(std::string_view line);
bool is_token(std::string_view text);

}  // namespace ktx::server
