#include "lib/runtime/quality/logits_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "lib/runtime/sampling/log_softmax.h"
#include "lib/support/byte_reader.h"

namespace ktx::runtime {
namespace {

constexpr std::string_view kMagic = "_logits_";
constexpr uint64_t kHeadBytes = 20;
constexpr float kRange = 16;  // ln p below the likeliest token's that codes span
constexpr float kMostCode = 65535;
constexpr int64_t kMostCount = int64_t{1} << 24;

// A row: two floats, then the codes, of which there is an even number.
uint64_t row_bytes(int64_t vocabulary) {
  return 8 + 4 * ((static_cast<uint64_t>(vocabulary) + 1) / 2);
}

uint64_t tokens_of(const LogitsHead& head) {
  return static_cast<uint64_t>(head.context) * static_cast<uint64_t>(head.contexts);
}

// No number of the head is above kMostCount, so that the product of two fits.
std::optional<uint64_t> file_bytes(const LogitsHead& head) {
  const uint64_t rows =
      static_cast<uint64_t>(scored_places(head.context)) * static_cast<uint64_t>(head.contexts);
  const auto all_rows = checked_mul(rows, row_bytes(head.vocabulary));
  return all_rows ? checked_add(*all_rows, kHeadBytes + 4 * tokens_of(head)) : std::nullopt;
}

uint64_t row_offset(const LogitsHead& head, int64_t context, int64_t place) {
  const int64_t row = context * scored_places(head.context) + place;
  return kHeadBytes + 4 * tokens_of(head) + static_cast<uint64_t>(row) * row_bytes(head.vocabulary);
}

}  // namespace

Result<LogitsFile> LogitsFile::open(const std::string& path) {
  LogitsFile logits(KTX_TRY(MappedFile::open(path)));
  const auto wrong = [&](const std::string& what) { return Error{path + ": " + what}; };
  ByteReader reader(logits.file_.bytes());
  const auto magic = reader.take_text(kMagic.size());
  if (!magic || *magic != kMagic) {
    return wrong(
        "not a file of log-probabilities; `ktx-run perplexity --save-logits FILE` or "
        "llama.cpp's --kl-divergence-base makes one");
  }
  const auto context = reader.read<uint32_t>();
  const auto vocabulary = reader.read<int32_t>();
  const auto contexts = reader.read<int32_t>();
  if (!contexts) return wrong("ends within its head of 20 bytes");
  LogitsHead& head = logits.head_;
  head = {*context, *vocabulary, *contexts};
  if (head.context < 4 || head.context > kMostCount || head.vocabulary < 1 ||
      head.vocabulary > kMostCount || head.contexts < 1 || head.contexts > kMostCount) {
    return wrong(
        fmt::format("{} contexts of {} tokens of a vocabulary of {} cannot be; the file is "
                    "damaged",
                    head.contexts, head.context, head.vocabulary));
  }
  const auto expected = file_bytes(head);
  if (!expected || *expected != logits.file_.bytes().size()) {
    return wrong(
        fmt::format("has {} bytes, {} contexts of {} tokens of a vocabulary of {} take {}; "
                    "what wrote it may have been stopped",
                    logits.file_.bytes().size(), head.contexts, head.context, head.vocabulary,
                    expected.value_or(UINT64_MAX)));
  }
  const auto ids = reader.take(4 * tokens_of(head));
  logits.tokens_.resize(tokens_of(head));
  std::memcpy(logits.tokens_.data(), ids->data(), ids->size());
  for (const int32_t id : logits.tokens_) {
    if (id < 0 || id >= head.vocabulary) {
      return wrong(fmt::format("token {} is not in the vocabulary of {}", id, head.vocabulary));
    }
  }
  return logits;
}

Status LogitsFile::read(int64_t context, int64_t place, std::span<float> out) const {
  KTX_ASSERT(std::ssize(out) == head_.vocabulary);
  const std::byte* row = file_.bytes().data() + row_offset(head_, context, place);
  float form[2];
  std::memcpy(form, row, 8);
  const auto [scale, least] = form;
  // The likeliest token has at least its share of all, at most all.
  constexpr float kRounding = 0.01f;
  const float span = scale * kMostCode, most = least + span;
  const float share = -std::log(static_cast<float>(head_.vocabulary));
  const bool can_be =
      scale >= 0 && span <= kRange + kRounding && most <= kRounding && most >= share - kRounding;
  if (!can_be) {
    return Error{
        fmt::format("{}: place {} of context {} has a scale of {} and a least of {}; the "
                    "file is damaged",
                    file_.path(), place, context, scale, least)};
  }
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t code;
    std::memcpy(&code, row + 8 + 2 * i, 2);
    out[i] = scale * static_cast<float>(code) + least;
  }
  return {};
}

Result<LogitsWriter> LogitsWriter::open(const std::string& path, const LogitsHead& head,
                                        std::span<const int32_t> tokens) {
  KTX_ASSERT(tokens.size() == tokens_of(head));
  const auto size = file_bytes(head);
  if (!size) return Error{path + ": the log-probabilities would take more than 2^64 bytes"};
  LogitsWriter writer(KTX_TRY(WorkFile::open(path, kMagic)), head);
  KTX_TRY(writer.file_.truncate(0));
  KTX_TRY(writer.file_.reserve(*size));
  std::vector<std::byte> begin(kHeadBytes);
  std::memcpy(begin.data(), kMagic.data(), kMagic.size());
  const auto put = [&](size_t at, int64_t number) {
    const auto stored = static_cast<int32_t>(number);
    std::memcpy(begin.data() + at, &stored, 4);
  };
  put(8, head.context);
  put(12, head.vocabulary);
  put(16, head.contexts);
  KTX_TRY(writer.file_.write(0, begin));
  KTX_TRY(writer.file_.write(kHeadBytes, std::as_bytes(tokens)));
  return writer;
}

Status LogitsWriter::write(int64_t context, int64_t place, std::span<const float> logits) {
  KTX_ASSERT(std::ssize(logits) == head_.vocabulary);
  const LogSoftmax softmax = KTX_TRY(log_softmax(logits));
  const auto most = static_cast<float>(softmax.top);
  const float least = std::max(*std::ranges::min_element(logits), most - kRange);
  const float scale = (most - least) / kMostCode;
  const float begin[2] = {scale, static_cast<float>(softmax.logprob(least))};
  std::vector<std::byte> row(row_bytes(head_.vocabulary));
  std::memcpy(row.data(), begin, 8);
  for (size_t i = 0; i < logits.size() && scale > 0; ++i) {
    if (!(logits[i] > least)) continue;
    const auto code = static_cast<uint16_t>(
        std::clamp(std::nearbyint((logits[i] - least) / scale), 0.0f, kMostCode));
    std::memcpy(row.data() + 8 + 2 * i, &code, 2);
  }
  return file_.write(row_offset(head_, context, place), row);
}

Status LogitsWriter::finish() {
  return file_.commit();
}

}  // namespace ktx::runtime
