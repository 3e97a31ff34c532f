// Unpacks a gzip body (RFC 1952, one member) that arrives in pieces, with zlib.
//
//   GzipReader gzip;
//   if (auto taken = gzip.take(bytes, 32 << 20, text); !taken) refuse;
//   gzip.done()
//
// Safe for any bytes: no more than `most_bytes` are unpacked, whatever was sent.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "lib/server/http/http_head.h"

namespace ktx::server {

class GzipReader {
 public:
  GzipReader();
  ~GzipReader();
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  // Appends what these bytes unpack to. A fault: 400 for what is no gzip, 413 beyond the limit.
  HttpResult<> take(std::string_view bytes, uint64_t most_bytes, std::string& text);
  bool done() const { return done_; }

 private:
  z_stream stream_ = {};
  bool done_ = false;
};

}  // namespace ktx::server
