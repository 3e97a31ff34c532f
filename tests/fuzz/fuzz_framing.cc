// Reads fuzzer input as the bytes of a connection: requests, one after the other, heads and bodies
// in all their framings and codings. Whether the bytes come at once or in pieces (of a size that
// the first byte says), the same requests must be seen, and the same error.
//
//   cmake --preset fuzz && ninja -C build-fuzz fuzz_framing
//   build-fuzz/tests/fuzz/fuzz_framing tests/fuzz/corpus/framing
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lib/server/http/http_body.h"
#include "lib/server/http/http_head.h"

namespace {

using namespace ktx::server;

constexpr uint64_t kMostBytes = 1 << 16;
constexpr size_t kHeaderBytes = 16 << 10;

// What a reader saw: a line for each request, and how it ended.
std::string seen(std::string_view bytes, size_t piece) {
  std::string out, held;
  HeadScan scan;
  HttpHead head;
  std::unique_ptr<BodyReader> body;
  size_t at = 0;
  for (;;) {
    // As far as what is held goes.
    for (;;) {
      if (body == nullptr) {
        const HeadScan::State state = scan.look(held);
        if (state == HeadScan::State::Wrong) return out + "wrong";
        if (state == HeadScan::State::More) {
          if (held.size() > kHeaderBytes) return out + "large";
          break;
        }
        if (scan.size() > kHeaderBytes) return out + "large";
        auto read = read_head(std::string_view(held).substr(0, scan.size()));
        if (!read) return out + std::to_string(read.error().status) + read.error().message;
        head = read.take();
        held.erase(0, scan.size());
        scan = HeadScan();
        body = std::make_unique<BodyReader>(head, kMostBytes);
      }
      held.erase(0, body->take(held));
      if (body->fault()) return out + std::to_string(body->fault()->status);
      if (!body->done()) break;
      if (body->text().size() > kMostBytes) __builtin_trap();
      out += head.request.method + " " + head.request.path + "?" + head.request.query + " " +
             body->text() + (head.keep_alive ? "\n" : " end\n");
      body = nullptr;
      if (!head.keep_alive) return out;
    }
    if (at >= bytes.size()) return out + "...";
    held += bytes.substr(at, piece);
    at += piece;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string whole = seen(bytes, bytes.size() + 1);
  if (seen(bytes, 1 + data[0] % 64) != whole) __builtin_trap();
  return 0;
}
