// Unpacks a gzip body (RFC 1952, one member) that arrives in pieces.
//
//   GzipReader gzip;
//   if (auto taken = gzip.take(bytes, 32 << 20, text); !taken) refuse;
//   gzip.done()
//
// Safe for any bytes: no more than `most_bytes` are unpacked, whatever was sent.
#pragma once

#include <boost/beast/zlib/inflate_stream.hpp>
#include <boost/crc.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lib/server/http/http_head.h"

namespace ktx::server {

class GzipReader {
 public:
  // Appends what these bytes unpack to. A fault: 400 for what is no gzip, 413 beyond the limit.
  HttpResult<> take(std::string_view bytes, uint64_t most_bytes, std::string& text);
  bool done() const { return state_ == State::Done; }

 private:
  enum class State { Fixed, ExtraSize, Extra, Name, Comment, HeadSum, Data, Sums, Done };
  // The next part of the head that is there, by its flags.
  void next_of_head(State behind);
  HttpResult<> inflate(std::string_view& bytes, uint64_t most_bytes, std::string& text);

  State state_ = State::Fixed;
  std::string held_;  // of a part of the head, or of the sums at the end
  uint8_t flags_ = 0;
  size_t extra_ = 0;
  uint32_t size_ = 0;
  boost::crc_32_type sum_;
  boost::beast::zlib::inflate_stream stream_;
};

}  // namespace ktx::server
