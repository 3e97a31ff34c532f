#include "lib/server/http/http_gzip.h"

#include <algorithm>
#include <array>

namespace ktx::server {
namespace {

namespace zlib = boost::beast::zlib;

constexpr size_t kFixedBytes = 10, kSumBytes = 8;
constexpr uint8_t kHeadSum = 2, kExtra = 4, kName = 8, kComment = 16, kReserved = 0xE0;

HttpFault no_gzip() {
  return {400, "the body is no whole gzip, which 'Content-Encoding' says it is"};
}

uint32_t little_endian(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

}  // namespace

void GzipReader::next_of_head(State behind) {
  constexpr std::pair<State, uint8_t> kParts[] = {{State::ExtraSize, kExtra},
                                                  {State::Name, kName},
                                                  {State::Comment, kComment},
                                                  {State::HeadSum, kHeadSum}};
  held_.clear();
  state_ = State::Data;
  for (const auto& [part, flag] : kParts) {
    if (part > behind && (flags_ & flag) != 0) {
      state_ = part;
      return;
    }
  }
}

HttpResult<> GzipReader::take(std::string_view bytes, uint64_t most_bytes, std::string& text) {
  // Until so many bytes are held.
  const auto collect = [&](size_t wanted) {
    const size_t part = std::min(wanted - held_.size(), bytes.size());
    held_ += bytes.substr(0, part);
    bytes.remove_prefix(part);
    return held_.size() == wanted;
  };
  while (!bytes.empty()) {
    switch (state_) {
      case State::Fixed:
        if (!collect(kFixedBytes)) break;
        flags_ = static_cast<uint8_t>(held_[3]);
        // The magic, and deflate.
        if (held_.substr(0, 3) != "\x1f\x8b\x08" || (flags_ & kReserved) != 0) return no_gzip();
        next_of_head(State::Fixed);
        break;
      case State::ExtraSize:
        if (!collect(2)) break;
        extra_ = little_endian(held_);
        held_.clear();
        state_ = State::Extra;
        if (extra_ == 0) next_of_head(State::Extra);
        break;
      case State::Extra: {
        const size_t part = std::min(extra_, bytes.size());
        bytes.remove_prefix(part);
        extra_ -= part;
        if (extra_ == 0) next_of_head(State::Extra);
        break;
      }
      case State::Name:
      case State::Comment: {
        const size_t end = bytes.find('\0');
        bytes.remove_prefix(std::min(end == bytes.npos ? end : end + 1, bytes.size()));
        if (end != bytes.npos) next_of_head(state_);
        break;
      }
      case State::HeadSum:
        if (collect(2)) next_of_head(State::HeadSum);
        break;
      case State::Data:
        KTX_TRY(inflate(bytes, most_bytes, text));
        break;
      case State::Sums:
        if (!collect(kSumBytes)) break;
        if (little_endian(std::string_view(held_).substr(0, 4)) != sum_.checksum() ||
            little_endian(std::string_view(held_).substr(4)) != size_) {
          return no_gzip();
        }
        state_ = State::Done;
        break;
      case State::Done:
        return no_gzip();  // more members, or rubbish
    }
  }
  return {};
}

HttpResult<> GzipReader::inflate(std::string_view& bytes, uint64_t most_bytes, std::string& text) {
  std::array<char, 32768> part;
  for (;;) {
    zlib::z_params io;
    io.next_in = bytes.data();
    io.avail_in = bytes.size();
    io.next_out = part.data();
    io.avail_out = part.size();
    boost::beast::error_code error;
    stream_.write(io, zlib::Flush::sync, error);
    const size_t made = part.size() - io.avail_out;
    bytes.remove_prefix(bytes.size() - io.avail_in);
    if (made > most_bytes - std::min<uint64_t>(most_bytes, text.size())) {
      return HttpFault{413,
                       "the body unpacks to more than this server takes; --max-body changes "
                       "that"};
    }
    text.append(part.data(), made);
    sum_.process_bytes(part.data(), made);
    size_ += static_cast<uint32_t>(made);
    if (error == zlib::error::end_of_stream) {
      state_ = State::Sums;
      held_.clear();
      return {};
    }
    if (error && error != zlib::error::need_buffers) return no_gzip();
    if (io.avail_out > 0) return {};  // all of the bytes were taken
  }
}

}  // namespace ktx::server
