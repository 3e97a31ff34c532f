#include "lib/server/http/http_gzip.h"

#include <algorithm>
#include <array>
#include <new>

namespace ktx::server {
namespace {

constexpr int kGzip = 16;  // zlib's: a head and sums of gzip, added to the bits of the window

HttpFault no_gzip() {
  return {400, "the body is no whole gzip, which 'Content-Encoding' says it is"};
}

}  // namespace

GzipReader::GzipReader() {
  if (inflateInit2(&stream_, MAX_WBITS + kGzip) != Z_OK) throw std::bad_alloc();
}
GzipReader::~GzipReader() {
  inflateEnd(&stream_);
}

HttpResult<> GzipReader::take(std::string_view bytes, uint64_t most_bytes, std::string& text) {
  std::array<char, 32768> part;
  while (!bytes.empty()) {
    if (done_) return no_gzip();  // more members, or rubbish
    const size_t given = std::min<size_t>(bytes.size(), 1 << 30);
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    stream_.avail_in = static_cast<uInt>(given);
    int status = Z_OK;
    do {
      stream_.next_out = reinterpret_cast<Bytef*>(part.data());
      stream_.avail_out = part.size();
      status = inflate(&stream_, Z_NO_FLUSH);
      const size_t made = part.size() - stream_.avail_out;
      if (made > most_bytes - std::min<uint64_t>(most_bytes, text.size())) {
        return HttpFault{413,
                         "the body unpacks to more than this server takes; --max-body changes "
                         "that"};
      }
      text.append(part.data(), made);
      if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) return no_gzip();
    } while (stream_.avail_out == 0 && status != Z_STREAM_END);
    done_ = status == Z_STREAM_END;
    bytes.remove_prefix(given - stream_.avail_in);
  }
  return {};
}

}  // namespace ktx::server
