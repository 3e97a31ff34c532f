#define PCRE2_CODE_UNIT_WIDTH 8
#include "lib/support/regex.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <cstdint>

namespace ktx {
namespace {

constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kDepthLimit = 100'000;
// A scanner's share: the JIT stack is address space until it is used; the interpreter's
// heap takes about 130 bytes for each remembered place.
constexpr size_t kJitStackMin = 64u << 10;
constexpr size_t kJitStackMax = 64u << 20;
constexpr uint32_t kHeapLimitKib = 256u << 10;
constexpr uint32_t kStepsPerByte = 64;
constexpr uint32_t kTestHeapKib = 16u << 10;

struct CompiledPattern {
  pcre2_code* code = nullptr;
  Regex::CompileError error;
};

CompiledPattern compile_pattern(std::string_view pattern) {
  int number = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &number, &offset, nullptr);
  if (code) {
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // best effort: the interpreter serves as well
    return {code, {}};
  }
  char text[256] = {};
  pcre2_get_error_message(number, reinterpret_cast<PCRE2_UCHAR*>(text), sizeof(text));
  return {nullptr, {text, offset}};
}

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  pcre2_match_context* limits = nullptr;
  ~Code() {
    pcre2_match_context_free(limits);
    pcre2_code_free(code);
  }
};

Result<Regex> Regex::compile(std::string_view pattern) {
  CompiledPattern compiled = compile_pattern(pattern);
  if (!compiled.code) {
    return Error{fmt::format("{} at offset {} of the pattern", compiled.error.message,
                             compiled.error.offset)};
  }
  auto code = std::make_shared<Code>();
  code->code = compiled.code;
  code->limits = pcre2_match_context_create(nullptr);
  pcre2_set_match_limit(code->limits, kMatchLimit);
  pcre2_set_depth_limit(code->limits, kDepthLimit);
  return Regex(std::move(code));
}

std::optional<Regex::CompileError> Regex::check(std::string_view pattern) {
  CompiledPattern compiled = compile_pattern(pattern);
  if (!compiled.code) return compiled.error;
  pcre2_code_free(compiled.code);
  return std::nullopt;
}

std::optional<Regex::Match> Regex::search(std::string_view subject, size_t from) const {
  if (from > subject.size()) return std::nullopt;
  pcre2_match_data* data = pcre2_match_data_create_from_pattern(code_->code, nullptr);
  const int found = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(subject.data()),
                                subject.size(), from, 0, data, code_->limits);
  std::optional<Match> match;
  if (found > 0) {
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data);
    match = Match{range[0], range[1]};
  }
  pcre2_match_data_free(data);
  return match;
}

Regex::Outcome Regex::test(std::string_view subject, uint32_t step_limit) const {
  return RegexTester().test(*this, subject, step_limit);
}

struct RegexTester::Buffers {
  pcre2_match_data* data = nullptr;
  pcre2_match_context* limits = nullptr;
  ~Buffers() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(limits);
  }
};

RegexTester::RegexTester() : buffers_(std::make_unique<Buffers>()) {
  buffers_->data = pcre2_match_data_create(1, nullptr);
  buffers_->limits = pcre2_match_context_create(nullptr);
  pcre2_set_heap_limit(buffers_->limits, kTestHeapKib);
}
RegexTester::RegexTester(RegexTester&&) noexcept = default;
RegexTester::~RegexTester() = default;

Regex::Outcome RegexTester::test(const Regex& regex, std::string_view subject,
                                 uint32_t step_limit) {
  pcre2_set_match_limit(buffers_->limits, step_limit);
  pcre2_set_depth_limit(buffers_->limits, step_limit);
  // ASCII is valid UTF-8: the check of it would take longer than most searches.
  const bool ascii = std::all_of(subject.begin(), subject.end(),
                                 [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  const int found =
      pcre2_match(regex.code_->code, reinterpret_cast<PCRE2_SPTR>(subject.data()), subject.size(),
                  0, ascii ? PCRE2_NO_UTF_CHECK : 0, buffers_->data, buffers_->limits);
  if (found >= 0) return Regex::Outcome::Match;  // 0: more groups than the one pair asked for
  return found == PCRE2_ERROR_NOMATCH ? Regex::Outcome::None : Regex::Outcome::Limit;
}

struct RegexScanner::Buffers {
  std::shared_ptr<const Regex::Code> code;
  pcre2_match_data* data = nullptr;
  pcre2_match_context* limits = nullptr;
  pcre2_jit_stack* stack = nullptr;
  ~Buffers() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(limits);
    pcre2_jit_stack_free(stack);
  }
};

RegexScanner::RegexScanner(const Regex& regex) : buffers_(std::make_unique<Buffers>()) {
  buffers_->code = regex.code_;
  buffers_->data = pcre2_match_data_create_from_pattern(regex.code_->code, nullptr);
  buffers_->limits = pcre2_match_context_create(nullptr);
  pcre2_set_heap_limit(buffers_->limits, kHeapLimitKib);
}
RegexScanner::RegexScanner(RegexScanner&&) noexcept = default;
RegexScanner::~RegexScanner() = default;

RegexScanner::Found RegexScanner::next(std::string_view subject, size_t from, Regex::Match& match) {
  if (from > subject.size()) return Found::None;
  Buffers& b = *buffers_;
  const uint64_t steps = kMatchLimit + static_cast<uint64_t>(subject.size()) * kStepsPerByte;
  const auto limit = static_cast<uint32_t>(std::min<uint64_t>(steps, UINT32_MAX));
  pcre2_set_match_limit(b.limits, limit);
  pcre2_set_depth_limit(b.limits, limit);
  const auto run = [&](uint32_t options) {
    return pcre2_match(b.code->code, reinterpret_cast<PCRE2_SPTR>(subject.data()), subject.size(),
                       from, PCRE2_NO_UTF_CHECK | options, b.data, b.limits);
  };
  int found = run(0);
  if (found == PCRE2_ERROR_JIT_STACKLIMIT && !b.stack) {
    b.stack = pcre2_jit_stack_create(kJitStackMin, kJitStackMax, nullptr);
    if (b.stack) {
      pcre2_jit_stack_assign(b.limits, nullptr, b.stack);
      found = run(0);
    }
  }
  if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = run(PCRE2_NO_JIT);
  if (found == PCRE2_ERROR_NOMATCH) return Found::None;
  if (found <= 0) return Found::Limit;
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(b.data);
  // \K in a look-ahead can put the beginning behind the end, or before `from`.
  if (range[0] < from || range[1] < range[0]) return Found::Limit;
  match = {range[0], range[1]};
  return Found::Match;
}

}  // namespace ktx
