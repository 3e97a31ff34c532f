// Reads a request body that arrives in pieces, in either of HTTP/1.1's framings.
//
//   BodyReader body(head, 32 << 20);
//   const size_t used = body.take(bytes);       // what it left belongs to the next request
//   body.done(), body.fault(), body.text()
//
// A body with `Content-Encoding: gzip` is unpacked as it comes, within the same limit; other
// codings are a 415. A chunked body is read strictly: lines end in CRLF, sizes are hexadecimal
// digits and nothing else, extensions and trailers are checked, bounded and dropped. Safe for any
// bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lib/server/http/http_head.h"

namespace ktx::server {

class GzipReader;

class BodyReader {
 public:
  BodyReader(const HttpHead& head, uint64_t most_bytes);
  ~BodyReader();

  // Takes what is the body's of these bytes, and says how many that were.
  size_t take(std::string_view bytes);
  bool done() const { return state_ == State::Done; }
  const std::optional<HttpFault>& fault() const { return fault_; }
  // What it has so far, and the memory for it.
  std::string& text() { return text_; }
  uint64_t memory_bytes() const { return text_.capacity() + line_.capacity(); }

 private:
  enum class State { Data, Size, ChunkData, ChunkEnd, Trailer, Done };
  // A line without its CRLF; false: it has not ended.
  bool take_line(std::string_view bytes, size_t& at);
  void end_line();
  void read_size();
  void make_room(size_t more);
  void add(std::string_view bytes);
  void fail(int status, std::string message);

  const uint64_t most_bytes_;
  State state_ = State::Size;
  uint64_t left_ = 0;         // of the body or of the chunk
  uint64_t extra_bytes_ = 0;  // of extensions and trailers
  std::string line_;
  std::string text_;
  std::unique_ptr<GzipReader> gzip_;  // null: the body is as it is
  std::optional<HttpFault> fault_;
};

}  // namespace ktx::server
