// The messages between hosts. Rank 0 has the engine that requests use; the others follow it:
//
//   rank 0 -> r   Start            open the plan for this shape         r answers Ready
//                 Forward          compute your parts of this batch     r answers ForwardOver
//                 CopyBlock        a block of keys and values
//                 MapBlock         give your slots of a block           r answers Block
//                 UnmapBlock       ... and take back what they are now
//                 ReadStates       give your states of a slot           r answers States
//                 WriteStates      take them
//                 ReadValue        give a row of a value                r answers Value
//                 CountExperts     what was counted by expert           r answers Counts
//                 EnableTimes, GiveTimes                                r answers Times
//                 Connect          make links between GPUs              r answers Connected
//                 UseLinks         ... and use them, or not
//                 Close            the engine is closed
//                 Measure          measure your machine                  r answers Machine
//                 Ping             answer with so many bytes             r answers Pong
//   any -> any    LinkId           of a link that both ends make
//                 Values           those of a part of the network, in a pass; where they come by a
//                                  link, how many bytes
//
// On the watch's channel: Alive, Stop (a pass), Failed (the run; text), Left (this host ends in
// order).
//
// A message is its head and then what its kind says, in the order in which it is written, in the
// machine's byte order: all hosts of a run have the same ktx.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lib/runtime/hosts/network.h"
#include "lib/support/byte_reader.h"

namespace ktx::runtime {

enum class MessageKind : uint32_t {
  Start,
  Ready,
  ReadMemory,
  Memory,
  Forward,
  ForwardOver,
  CopyBlock,
  MapBlock,
  Block,
  UnmapBlock,
  ReadStates,
  States,
  WriteStates,
  ReadValue,
  Value,
  CountExperts,
  Counts,
  EnableTimes,
  GiveTimes,
  Times,
  Connect,
  Connected,
  LinkId,
  UseLinks,
  Close,
  Measure,
  Machine,
  Ping,
  Pong,
  Values,
  Alive,
  Stop,
  Failed,
  Left,
};

struct MessageHead {
  MessageKind kind = MessageKind::Alive;
  uint32_t part = 0;  // of Values; of Failed: 1 where it is the first host that is lost
  int64_t pass = 0;   // of Forward, ForwardOver, Values, Stop
};

class MessageWriter {
 public:
  explicit MessageWriter(const MessageHead& head) { put(head); }

  template <class T>
  MessageWriter& put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    return put_bytes(std::as_bytes(std::span(&value, 1)));
  }
  // With its length, unlike put_bytes().
  template <class T>
  MessageWriter& put_list(std::span<const T> list) {
    static_assert(std::is_trivially_copyable_v<T>);
    put(static_cast<uint64_t>(list.size()));
    return put_bytes(std::as_bytes(list));
  }
  MessageWriter& put_text(std::string_view text) { return put_list(std::span(text)); }
  MessageWriter& put_bytes(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  // Room for bytes that the caller fills in.
  std::span<std::byte> add(size_t size) {
    bytes_.resize(bytes_.size() + size);
    return std::span(bytes_).last(size);
  }

  MessageBytes take() { return std::move(bytes_); }

 private:
  MessageBytes bytes_;
};

// Reads what a MessageWriter wrote; every length is compared before it is used. After a mistake all
// reads give nothing, and ok() says so.
class MessageReader {
 public:
  explicit MessageReader(std::span<const std::byte> bytes) : in_(bytes) {
    head_ = get<MessageHead>();
  }

  const MessageHead& head() const { return head_; }
  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && in_.remaining() == 0; }

  template <class T>
  T get() {
    const std::optional<T> value = ok_ ? in_.read<T>() : std::nullopt;
    ok_ = value.has_value();
    return value.value_or(T{});
  }
  // At most `most` of them.
  template <class T>
  std::vector<T> get_list(uint64_t most) {
    const auto count = get<uint64_t>();
    ok_ = ok_ && count <= most && count <= in_.remaining() / sizeof(T);
    std::vector<T> list(ok_ ? count : 0);
    const auto bytes = get_bytes(list.size() * sizeof(T));
    if (!bytes.empty()) std::memcpy(list.data(), bytes.data(), bytes.size());
    return list;
  }
  std::string get_text() {
    const std::vector<char> text = get_list<char>(1 << 20);
    return {text.begin(), text.end()};
  }
  std::span<const std::byte> get_bytes(uint64_t size) {
    const auto bytes = ok_ ? in_.take(size) : std::nullopt;
    ok_ = bytes.has_value();
    return bytes.value_or(std::span<const std::byte>());
  }

 private:
  ByteReader in_;
  MessageHead head_;
  bool ok_ = true;
};

}  // namespace ktx::runtime
