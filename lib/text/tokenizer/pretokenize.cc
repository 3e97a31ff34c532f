#include "lib/text/tokenizer/pretokenize.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "lib/support/strings.h"
#include "lib/text/tokenizer/byte_alphabet.h"
#include "lib/text/tokenizer/split_dialect.h"
#include "lib/text/utf8.h"

namespace ktx::text {
namespace {

enum class SplitSet : uint8_t {
#define KTX_SPLIT_SET(set) set,
#include "lib/text/tokenizer/pretokenizer.def"
};

struct SplitRow {
  SplitSet set;
  bool on_bytes;
  std::string_view pattern;
};

constexpr SplitRow kSplitRows[] = {
#define KTX_SPLIT(set, on_bytes, pattern) {SplitSet::set, on_bytes, pattern},
#include "lib/text/tokenizer/pretokenizer.def"
};

struct PreRow {
  std::string_view name;
  SplitSet set;
  bool ignore_merges;
  bool add_bos;
};

constexpr PreRow kPreRows[] = {
#define KTX_PRE(name, set, ignore_merges, add_bos) {name, SplitSet::set, ignore_merges, add_bos},
#include "lib/text/tokenizer/pretokenizer.def"
};

using Piece = Splitter::Piece;

struct Span {
  Piece range;
  bool is_match = false;
};

// The text as the patterns may see it: valid UTF-8, wrong bytes replaced. Offsets
// translate back by counting the replacements before them.
struct CleanText {
  std::string copy;              // empty when the text was clean
  std::vector<size_t> replaced;  // where in `copy` a wrong byte became U+FFFD

  size_t original_offset(size_t offset) const {
    const auto before = static_cast<size_t>(
        std::lower_bound(replaced.begin(), replaced.end(), offset) - replaced.begin());
    if (before == 0) return offset;
    // A cut inside of a replacement (steps on bytes make them) goes behind it.
    const size_t end = replaced[before - 1] + kReplacementChar.size();
    return std::max(offset, end) - before * (kReplacementChar.size() - 1);
  }
};

CleanText clean(std::string_view text) {
  CleanText result;
  size_t valid = valid_utf8_prefix(text);
  if (valid == text.size()) return result;
  result.copy.reserve(text.size() + text.size() / 8);
  while (true) {
    result.copy.append(text.substr(0, valid));
    text.remove_prefix(valid);
    if (text.empty()) return result;
    result.replaced.push_back(result.copy.size());
    result.copy.append(kReplacementChar);
    text.remove_prefix(1);
    valid = valid_utf8_prefix(text);
  }
}

size_t next_char(std::string_view text, size_t at) {
  ++at;
  while (at < text.size() && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) ++at;
  return at;
}

// Matches and gaps of one piece, in order, without empty ones.
void find_spans(RegexScanner& scanner, std::string_view text, std::vector<Span>& spans) {
  spans.clear();
  size_t done = 0, from = 0;
  Regex::Match match;
  while (from < text.size() && scanner.next(text, from, match) == RegexScanner::Found::Match) {
    if (match.begin > done) spans.push_back({{done, match.begin}, false});
    if (match.end > match.begin) spans.push_back({{match.begin, match.end}, true});
    done = match.end;
    from = match.end > match.begin ? match.end : next_char(text, match.end);
  }
  if (done < text.size()) spans.push_back({{done, text.size()}, false});
}

void apply_behavior(const SplitStep& rule, std::vector<Span>& spans) {
  if (rule.invert) {
    for (Span& span : spans) span.is_match = !span.is_match;
  }
  std::vector<Span> joined;
  switch (rule.behavior) {
    case SplitBehavior::Isolated:
      return;
    case SplitBehavior::Removed:
      std::erase_if(spans, [](const Span& span) { return span.is_match; });
      return;
    case SplitBehavior::Contiguous:
      for (const Span& span : spans) {
        if (!joined.empty() && joined.back().is_match == span.is_match) {
          joined.back().range.end = span.range.end;
        } else {
          joined.push_back(span);
        }
      }
      break;
    case SplitBehavior::MergedWithPrevious:
      for (size_t i = 0; i < spans.size(); ++i) {
        if (i > 0 && spans[i].is_match && !spans[i - 1].is_match) {
          joined.back().range.end = spans[i].range.end;
        } else {
          joined.push_back(spans[i]);
        }
      }
      break;
    case SplitBehavior::MergedWithNext:
      for (size_t i = 0; i < spans.size(); ++i) {
        if (i > 0 && spans[i - 1].is_match && !spans[i].is_match) {
          joined.back().range.end = spans[i].range.end;
        } else {
          joined.push_back(spans[i]);
        }
      }
      break;
  }
  spans = std::move(joined);
}

}  // namespace

std::vector<std::string> pretokenizer_names() {
  std::vector<std::string> names;
  for (const PreRow& row : kPreRows) names.emplace_back(row.name);
  return names;
}

Result<Pretokenizer> find_pretokenizer(std::string_view name) {
  const auto* row = std::find_if(std::begin(kPreRows), std::end(kPreRows),
                                 [&](const PreRow& candidate) { return candidate.name == name; });
  if (row == std::end(kPreRows)) {
    const std::vector<std::string> names = pretokenizer_names();
    return Error{fmt::format("unknown pre-tokenizer '{}'{}; known are {}", printable(name),
                             did_you_mean(name, names), join(names, ", "))};
  }
  Pretokenizer found{{}, row->ignore_merges, row->add_bos};
  for (const SplitRow& split : kSplitRows) {
    if (split.set != row->set) continue;
    found.splits.push_back(
        {KTX_TRY(to_pcre2(split.pattern)), SplitBehavior::Isolated, false, split.on_bytes});
  }
  return found;
}

Result<Splitter> Splitter::create(std::span<const SplitStep> steps) {
  Splitter splitter;
  for (const SplitStep& step : steps) {
    Result<Regex> regex = Regex::compile(step.pattern);
    if (!regex) {
      return Error{
          fmt::format("split pattern '{}': {}", printable(step.pattern), regex.error().message)};
    }
    splitter.steps_.push_back({step, regex.take()});
  }
  return splitter;
}

std::vector<Piece> Splitter::split(std::string_view text) const {
  std::vector<Piece> pieces;
  if (text.empty()) return pieces;
  const CleanText cleaned = clean(text);
  const std::string_view subject = cleaned.copy.empty() ? text : cleaned.copy;
  pieces.push_back({0, subject.size()});

  std::vector<Piece> next;
  std::vector<Span> spans;
  std::string mapped;
  std::vector<size_t> origin;  // of each byte of `mapped`, in the piece
  for (const Step& step : steps_) {
    RegexScanner scanner(step.regex);
    const bool keeps_all = step.rule.behavior != SplitBehavior::Removed;
    next.clear();
    for (const Piece& piece : pieces) {
      const std::string_view bytes = subject.substr(piece.begin, piece.end - piece.begin);
      // One character is one piece, whatever matches: a text of nothing else would take a search
      // for each and each step.
      if (keeps_all && next_char(bytes, 0) == bytes.size() &&
          (!step.rule.on_bytes || bytes.size() == 1)) {
        next.push_back(piece);
        continue;
      }
      if (step.rule.on_bytes) {
        mapped.clear();
        origin.clear();
        for (size_t i = 0; i < bytes.size(); ++i) {
          append_in_alphabet(bytes.substr(i, 1), mapped);
          origin.resize(mapped.size(), i);
        }
        origin.push_back(bytes.size());
        find_spans(scanner, mapped, spans);
        for (Span& span : spans) span.range = {origin[span.range.begin], origin[span.range.end]};
      } else {
        find_spans(scanner, bytes, spans);
      }
      apply_behavior(step.rule, spans);
      for (const Span& span : spans) {
        next.push_back({piece.begin + span.range.begin, piece.begin + span.range.end});
      }
    }
    std::swap(pieces, next);
  }
  if (cleaned.copy.empty()) return pieces;

  next.clear();
  for (const Piece& piece : pieces) {
    const Piece range{cleaned.original_offset(piece.begin), cleaned.original_offset(piece.end)};
    if (range.end > range.begin) next.push_back(range);
  }
  return next;
}

}  // namespace ktx::text
