// TokenizerData as the bytes of a plan section, and back.
//
//   u32 magic 'KTOK'  u32 version  u8 kind  u8 normalizer  u16 flags  u32 reserved
//   i32 bos eos eot eom unk sep pad mask
//   text pre
//   u32 n, n x { text pattern, u8 behavior, u8 step flags }          split steps
//   list tokens, list extra_symbols
//   u32 n, n x u8 types    u32 n, n x f32 scores    u32 n, n x {u32 left, right, result}
//   u32 n, n x i32 eog     u32 n, n x u32 lstrip    u32 n, n x u32 rstrip
//   since version 2:
//   u32 n, n x u32 single_word    u32 n, n x u32 normalized    text character_map
//
// text is u32 size and its bytes; list is u32 n, n x u32 ends, and as many bytes as
// the last end says. All little-endian, nothing aligned: the section is copied once.
#include <fmt/format.h>

#include <cstring>

#include "lib/support/byte_reader.h"
#include "lib/text/tokenizer/tokenizer_data.h"

namespace ktx::text {
namespace {

constexpr uint32_t kMagic = 0x4B4F544B;  // "KTOK"
constexpr uint32_t kVersion = 2;         // 1 is read, too

// One bit each, in this order; append only.
using Flag = bool TokenizerData::*;
constexpr Flag kFlags[] = {
    &TokenizerData::add_bos,
    &TokenizerData::add_eos,
    &TokenizerData::add_space_prefix,
    &TokenizerData::space_prefix_once,
    &TokenizerData::space_prefix_if_missing,
    &TokenizerData::remove_extra_whitespaces,
    &TokenizerData::treat_whitespace_as_suffix,
    &TokenizerData::escape_whitespaces,
    &TokenizerData::byte_fallback,
    &TokenizerData::ignore_merges,
    &TokenizerData::byte_level,
    &TokenizerData::lowercase,
    &TokenizerData::strip_accents,
};
constexpr size_t kFlagCount = sizeof(kFlags) / sizeof(kFlags[0]);

using Id = int32_t SpecialIds::*;
constexpr Id kIds[] = {&SpecialIds::bos, &SpecialIds::eos, &SpecialIds::eot, &SpecialIds::eom,
                       &SpecialIds::unk, &SpecialIds::sep, &SpecialIds::pad, &SpecialIds::mask};

class Writer {
 public:
  template <class T>
  void number(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    out_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  template <class T>
  void array(std::span<const T> items) {
    number(static_cast<uint32_t>(items.size()));
    out_.append(reinterpret_cast<const char*>(items.data()), items.size_bytes());
  }
  void text(std::string_view text) {
    number(static_cast<uint32_t>(text.size()));
    out_.append(text);
  }
  void list(const TextList& list) {
    array(list.ends());
    out_.append(list.bytes());
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : in_(bytes) {}

  Error cut(std::string_view what) const {
    return Error{fmt::format("tokenizer section: {} at offset {} goes beyond the end", what,
                             in_.position())};
  }
  template <class T>
  Result<T> number(std::string_view what) {
    const std::optional<T> value = in_.read<T>();
    if (!value) return cut(what);
    return *value;
  }
  template <class T>
  Result<std::vector<T>> array(std::string_view what) {
    const uint32_t count = KTX_TRY(number<uint32_t>(what));
    const auto bytes = in_.take(uint64_t{count} * sizeof(T));  // before anything is allocated
    if (!bytes) return cut(what);
    std::vector<T> items(count);
    if (count > 0) std::memcpy(items.data(), bytes->data(), bytes->size());
    return items;
  }
  Result<std::string> text(std::string_view what) {
    const uint32_t size = KTX_TRY(number<uint32_t>(what));
    const auto bytes = in_.take_text(size);
    if (!bytes) return cut(what);
    return std::string(*bytes);
  }
  Result<TextList> list(std::string_view what) {
    std::vector<uint32_t> ends = KTX_TRY(array<uint32_t>(what));
    const auto bytes = in_.take_text(ends.empty() ? 0 : ends.back());
    if (!bytes) return cut(what);
    Result<TextList> list = TextList::from_parts(std::string(*bytes), std::move(ends));
    if (!list) return Error{fmt::format("tokenizer section: {}: {}", what, list.error().message)};
    return list;
  }
  bool at_end() const { return in_.remaining() == 0; }
  uint64_t position() const { return in_.position(); }

 private:
  ByteReader in_;
};

template <class Enum>
Result<Enum> checked_enum(uint8_t value, Enum last, std::string_view what) {
  if (value > static_cast<uint8_t>(last)) {
    return Error{fmt::format("tokenizer section: unknown {} {}", what, value)};
  }
  return static_cast<Enum>(value);
}

static_assert(sizeof(Merge) == 12 && sizeof(TokenType) == 1);

}  // namespace

std::string serialize(const TokenizerData& data) {
  Writer out;
  out.number(kMagic);
  out.number(kVersion);
  out.number(static_cast<uint8_t>(data.kind));
  out.number(static_cast<uint8_t>(data.normalizer));
  uint16_t flags = 0;
  for (size_t i = 0; i < kFlagCount; ++i) {
    if (data.*kFlags[i]) flags = static_cast<uint16_t>(flags | 1u << i);
  }
  out.number(flags);
  out.number(uint32_t{0});
  for (const Id id : kIds) out.number(data.ids.*id);
  out.text(data.pre);
  out.number(static_cast<uint32_t>(data.splits.size()));
  for (const SplitStep& step : data.splits) {
    out.text(step.pattern);
    out.number(static_cast<uint8_t>(step.behavior));
    out.number(static_cast<uint8_t>((step.invert ? 1 : 0) | (step.on_bytes ? 2 : 0)));
  }
  out.list(data.tokens);
  out.list(data.extra_symbols);
  out.array(std::span<const TokenType>(data.types));
  out.array(std::span<const float>(data.scores));
  out.array(std::span<const Merge>(data.merges));
  out.array(std::span<const int32_t>(data.eog));
  out.array(std::span<const uint32_t>(data.lstrip));
  out.array(std::span<const uint32_t>(data.rstrip));
  out.array(std::span<const uint32_t>(data.single_word));
  out.array(std::span<const uint32_t>(data.normalized));
  out.text(data.character_map);
  return out.take();
}

Result<TokenizerData> parse_tokenizer_data(std::span<const std::byte> bytes) {
  Reader in(bytes);
  if (KTX_TRY(in.number<uint32_t>("the magic number")) != kMagic) {
    return Error{"tokenizer section: wrong magic number"};
  }
  const uint32_t version = KTX_TRY(in.number<uint32_t>("the version"));
  if (version < 1 || version > kVersion) {
    return Error{fmt::format("tokenizer section: version {}, this program reads 1 to {}", version,
                             kVersion)};
  }
  TokenizerData data;
  data.kind = KTX_TRY(
      checked_enum(KTX_TRY(in.number<uint8_t>("the kind")), TokenizerKind::Unigram, "kind"));
  data.normalizer = KTX_TRY(
      checked_enum(KTX_TRY(in.number<uint8_t>("the normalizer")), Normalizer::Nfkd, "normalizer"));
  const uint16_t flags = KTX_TRY(in.number<uint16_t>("the flags"));
  if (flags >> kFlagCount != 0) {
    return Error{fmt::format("tokenizer section: unknown flags {:#x}", flags)};
  }
  for (size_t i = 0; i < kFlagCount; ++i) data.*kFlags[i] = (flags >> i & 1) != 0;
  if (KTX_TRY(in.number<uint32_t>("the header")) != 0) {
    return Error{"tokenizer section: a reserved field is not 0"};
  }
  for (const Id id : kIds) data.ids.*id = KTX_TRY(in.number<int32_t>("a special token"));
  data.pre = KTX_TRY(in.text("the pre-tokenizer"));
  const uint32_t splits = KTX_TRY(in.number<uint32_t>("the number of patterns"));
  for (uint32_t i = 0; i < splits; ++i) {  // each takes 6 bytes at least: no count can run away
    SplitStep step;
    step.pattern = KTX_TRY(in.text("a pattern"));
    step.behavior = KTX_TRY(checked_enum(KTX_TRY(in.number<uint8_t>("a split behavior")),
                                         SplitBehavior::Contiguous, "split behavior"));
    const uint8_t step_flags = KTX_TRY(in.number<uint8_t>("split flags"));
    if (step_flags > 3)
      return Error{fmt::format("tokenizer section: unknown split flags {:#x}", step_flags)};
    step.invert = (step_flags & 1) != 0;
    step.on_bytes = (step_flags & 2) != 0;
    data.splits.push_back(std::move(step));
  }
  data.tokens = KTX_TRY(in.list("the tokens"));
  data.extra_symbols = KTX_TRY(in.list("the extra symbols"));
  data.types = KTX_TRY(in.array<TokenType>("the token types"));
  data.scores = KTX_TRY(in.array<float>("the scores"));
  data.merges = KTX_TRY(in.array<Merge>("the merges"));
  data.eog = KTX_TRY(in.array<int32_t>("the end tokens"));
  data.lstrip = KTX_TRY(in.array<uint32_t>("the left-stripping tokens"));
  data.rstrip = KTX_TRY(in.array<uint32_t>("the right-stripping tokens"));
  if (version >= 2) {
    data.single_word = KTX_TRY(in.array<uint32_t>("the tokens of single words"));
    data.normalized = KTX_TRY(in.array<uint32_t>("the normalised tokens"));
    data.character_map = KTX_TRY(in.text("the table of characters"));
  }
  if (!in.at_end()) {
    return Error{
        fmt::format("tokenizer section: {} bytes, expected {}", bytes.size(), in.position())};
  }
  KTX_TRY(validate(data));
  return data;
}

}  // namespace ktx::text
