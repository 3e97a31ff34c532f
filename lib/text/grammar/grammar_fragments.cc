#include "lib/text/grammar/grammar_fragments.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <string_view>
#include <unordered_map>

#include "lib/support/strings.h"
#include "lib/text/grammar/grammar_automaton.h"
#include "lib/text/grammar/token_terminals.h"
#include "lib/text/grammar/utf8_ranges.h"

namespace ktx::text::grammar {
namespace {

constexpr int64_t kOutlineSize = 250;    // a repeated part above this …
constexpr int64_t kOutlineTotal = 4000;  // … that would take this much is called instead

Error too_large() {
  return Error{
      fmt::format("the grammar is too large: more than {} states; use smaller counts, or fewer "
                  "rules or properties",
                  kMaxFragmentStates)};
}

class Builder {
 public:
  Builder(const GrammarRules& rules, const LoopChoice& loops)
      : rules_(rules), table_(rules, loops) {}

  Result<Fragments> build(bool& full) {
    unit(rules_.rules[rules_.root].expr);
    for (size_t u = 0; u < out_.units.size() && !full_; ++u) {
      const Unit unit = out_.units[u];
      if (unit.item < 0) {
        build(unit.expr, unit.start, unit.end);
        continue;
      }
      const uint32_t behind = state();
      build(unit.separator, unit.start, behind);
      if (!full_) call(static_cast<uint32_t>(unit.item), behind, unit.end);
    }
    full = full_;
    if (full_) return too_large();
    return std::move(out_);
  }

 private:
  uint32_t state() {
    if (out_.states.size() >= kMaxFragmentStates) {
      full_ = true;
      return 0;
    }
    out_.states.emplace_back();
    return static_cast<uint32_t>(out_.states.size()) - 1;
  }
  void empty(uint32_t from, uint32_t to) { out_.states[from].empty.push_back(to); }
  uint32_t add_unit(int expr) {
    const uint32_t start = state();
    out_.units.push_back({expr, start, state()});
    return static_cast<uint32_t>(out_.units.size()) - 1;
  }
  uint32_t unit(int expr) {
    const auto known = unit_of_.find(expr);
    return known != unit_of_.end() ? known->second : unit_of_[expr] = add_unit(expr);
  }
  void call(uint32_t unit, uint32_t from, uint32_t to, int32_t loop = -1) {
    if (!full_) out_.states[from].units.push_back({unit, to, loop});
  }
  // The units of a loop's item: the first one, and those behind separators. All loops of the same
  // item share them.
  struct LoopUnits {
    uint32_t first, next;
  };
  LoopUnits loop_units(int item, int separator) {
    const auto [known, added] = loop_units_.try_emplace({item, separator}, LoopUnits{});
    if (!added) return known->second;
    LoopUnits& units = known->second;
    units.first = units.next = add_unit(item);
    if (separator >= 0) {
      units.next = add_unit(-1);
      out_.units[units.next].separator = separator;
      out_.units[units.next].item = static_cast<int32_t>(units.first);
    }
    for (const uint32_t each : {units.first, units.next}) {
      out_.units[each].again = static_cast<int32_t>(units.next);
    }
    return units;
  }
  void build_loop(int index, uint32_t from, uint32_t to) {
    const Expr& expr = rules_.exprs[index];
    const LoopUnits units =
        loop_units(expr.parts[0], expr.kind == ExprKind::List ? expr.parts[1] : -1);
    const auto loop = static_cast<int32_t>(out_.loops.size());
    out_.loops.push_back({units.next, std::max(1, expr.min), expr.max, index});
    if (expr.min == 0) empty(from, to);
    call(units.first, from, to, loop);
  }

  // Ways from one state to another that match the expression.
  void build(int index, uint32_t from, uint32_t to) {
    if (full_) return;
    const Expr& expr = rules_.exprs[index];
    if (table_.is_loop(index)) return build_loop(index, from, to);
    switch (expr.kind) {
      case ExprKind::Text:
        return build_text(expr.text, from, to);
      case ExprKind::Class:
        return build_class(expr.ranges, from, to);
      case ExprKind::Set:
        if (table_.shared(index)) {
          return build_shared_set(index, from, to);
        }
        return build_set(rules_.sets[expr.set], from, to);
      case ExprKind::Token:
        return build_token(expr.token, expr.others, from, to);
      case ExprKind::Sequence:
        return build_sequence(expr.parts, from, to);
      case ExprKind::Alternatives:
        for (const int part : expr.parts) build(part, from, to);
        return;
      case ExprKind::Repeat:
        return build_list(expr, -1, from, to);
      case ExprKind::List:
        return build_list(expr, expr.parts[1], from, to);
      case ExprKind::Joined:
        return build_joined(expr, from, to);
      case ExprKind::Rule:
        if (table_.called(expr)) return call(unit(rules_.rules[expr.rule].expr), from, to);
        return build(rules_.rules[expr.rule].expr, from, to);
    }
  }
  void build_sequence(std::span<const int> parts, uint32_t from, uint32_t to) {
    for (size_t i = 0; i < parts.size(); ++i) {
      const uint32_t next = i + 1 == parts.size() ? to : state();
      build(parts[i], from, next);
      from = next;
    }
    if (parts.empty()) empty(from, to);
  }
  void build_text(const std::string& text, uint32_t from, uint32_t to) {
    if (text.empty()) return empty(from, to);
    for (size_t i = 0; i < text.size(); ++i) {
      const uint32_t next = i + 1 == text.size() ? to : state();
      const auto byte = static_cast<uint8_t>(text[i]);
      out_.states[from].bytes.push_back({byte, byte, next});
      from = next;
    }
  }
  // Any but one: as far as the number is the same, and then another byte and any more.
  void build_token(int32_t token, bool others, uint32_t from, uint32_t to) {
    uint32_t same = state();
    std::array<uint32_t, kTokenNumberBytes + 1> other = {};  // so many bytes of another number
    for (size_t i = 1; others && i < kTokenNumberBytes; ++i) other[i] = state();
    other[kTokenNumberBytes] = to;
    for (size_t i = 1; others && i < kTokenNumberBytes; ++i) {
      out_.states[other[i]].bytes.push_back({0, 0xFF, other[i + 1]});
    }
    out_.states[from].bytes.push_back({kTokenMark, kTokenMark, same});
    const auto number = token_number(token);
    for (size_t i = 0; i < kTokenNumberBytes; ++i) {
      const bool last = i + 1 == kTokenNumberBytes;
      std::vector<ByteEdge>& edges = out_.states[same].bytes;
      const uint8_t byte = number[i];
      if (others && byte > 0) edges.push_back({0, static_cast<uint8_t>(byte - 1), other[i + 1]});
      if (others && byte < 0xFF) {
        edges.push_back({static_cast<uint8_t>(byte + 1), 0xFF, other[i + 1]});
      }
      if (last && others) return;
      const uint32_t next = last ? to : state();
      out_.states[same].bytes.push_back({byte, byte, next});
      same = next;
    }
  }
  // Called where it stands, but in its own unit.
  void build_shared_set(int index, uint32_t from, uint32_t to) {
    if (from == out_.units[unit(index)].start) {
      return build_set(rules_.sets[rules_.exprs[index].set], from, to);
    }
    call(unit(index), from, to);
  }
  void build_set(const RegularSet& set, uint32_t from, uint32_t to) {
    std::vector<uint32_t> states;
    for (size_t s = 0; s < set.states.size() && !full_; ++s) states.push_back(state());
    if (full_ || states.empty()) return;
    empty(from, states[0]);
    for (size_t s = 0; s < states.size() && !full_; ++s) {
      for (const RegularSet::Edge& edge : set.states[s].edges) {
        build_class({{edge.first, edge.last}}, states[s], states[edge.target]);
      }
      if (set.states[s].accepts) empty(states[s], to);
    }
  }
  void build_class(const std::vector<CodeRange>& ranges, uint32_t from, uint32_t to) {
    std::vector<ByteRangeSequence> sequences;
    for (const CodeRange& range : ranges) {
      append_utf8_ranges(range.first, range.last, sequences);
    }
    for (const ByteRangeSequence& sequence : sequences) {
      uint32_t at = from;
      for (int i = 0; i < sequence.length; ++i) {
        const uint32_t next = i + 1 == sequence.length ? to : state();
        out_.states[at].bytes.push_back({sequence.bytes[i].low, sequence.bytes[i].high, next});
        at = next;
      }
    }
  }
  void build_item(int part, bool outlined, uint32_t from, uint32_t to) {
    if (outlined) return call(unit(part), from, to);
    build(part, from, to);
  }
  // min to max items, with a separator between them (-1: none).
  void build_list(const Expr& expr, int separator, uint32_t from, uint32_t to) {
    const int item = expr.parts[0];
    const bool outlined = table_.size(item) > kOutlineSize &&
                          ExprTable::copies(expr) * table_.size(item) > kOutlineTotal;
    const bool bounded = expr.max != kNoLimit;
    uint32_t at = state();
    empty(from, at);
    // The copies up to the minimum, or the maximum where there is one.
    const int count = bounded ? expr.max : std::max(expr.min, 1);
    if (expr.min == 0) empty(at, to);
    for (int i = 0; i < count && !full_; ++i) {
      uint32_t begin = at;
      const bool last = i + 1 == count;
      if (i > 0 && separator >= 0) {
        begin = state();
        build(separator, at, begin);
      }
      if (!bounded && last) {
        // The last copy is a loop: item (separator item)*.
        const uint32_t loop = state(), behind = state();
        empty(begin, loop);
        build_item(item, outlined, loop, behind);
        if (separator >= 0) {
          build(separator, behind, loop);
        } else {
          empty(behind, loop);
        }
        empty(behind, to);
        return;
      }
      const uint32_t behind = state();
      build_item(item, outlined, begin, behind);
      at = behind;
      if (i + 1 >= expr.min) empty(at, to);
    }
  }
  // An item is most often a text, its key, and what follows it.
  struct Head {
    std::string_view text;
    std::span<const int> rest;
  };
  Head head_of(const int& item) const {
    const Expr& expr = rules_.exprs[item];
    if (expr.kind == ExprKind::Text) return {expr.text, {}};
    if (expr.kind == ExprKind::Sequence && !expr.parts.empty() &&
        rules_.exprs[expr.parts[0]].kind == ExprKind::Text) {
      return {rules_.exprs[expr.parts[0]].text, std::span(expr.parts).subspan(1)};
    }
    return {"", {&item, 1}};
  }
  // One more text from a state on, in which texts that begin alike share their way. What the
  // states lead to is copied along it, so that others may go on from their old forms.
  void add_text(uint32_t at, std::string_view text, uint32_t to) {
    for (const char c : text) {
      const auto byte = static_cast<uint8_t>(c);
      const uint32_t next = state();
      if (full_) return;
      std::vector<ByteEdge>& edges = out_.states[at].bytes;
      const auto known = std::find_if(edges.begin(), edges.end(),
                                      [&](const ByteEdge& edge) { return edge.low == byte; });
      if (known == edges.end()) {
        edges.push_back({byte, byte, next});
      } else {
        out_.states[next] = out_.states[known->target];
        known->target = next;
      }
      at = next;
    }
    empty(at, to);
  }
  // From the back: `open` is where one of the items that are left begins, which is the same
  // before the first of them and behind each separator. It differs from that of one item less
  // along the text of one key only, so all items together take as many states as their keys have
  // bytes, and no state of the automaton stands for several of them.
  void build_joined(const Expr& expr, uint32_t from, uint32_t to) {
    const std::span<const int> items = std::span(expr.parts).subspan(1);
    uint32_t open = state();
    bool may_end = true;
    for (size_t i = items.size(); i-- > 0 && !full_;) {
      const Head head = head_of(items[i]);
      const uint32_t begin = state(), done = state();
      build_sequence(head.rest, begin, done);
      if (i + 1 < items.size()) build(expr.parts[0], done, open);
      if (may_end) empty(done, to);
      const uint32_t with = state();
      if (full_) return;
      if (!expr.required[i]) out_.states[with] = out_.states[open];
      add_text(with, head.text, begin);
      open = with;
      may_end = may_end && !expr.required[i];
    }
    empty(from, open);
    if (may_end) empty(from, to);
  }

  const GrammarRules& rules_;
  const ExprTable table_;
  Fragments out_;
  std::unordered_map<int, uint32_t> unit_of_;
  std::map<std::pair<int, int>, LoopUnits> loop_units_;  // by item and separator
  bool full_ = false;
};

}  // namespace

Result<Fragments> build_fragments(const GrammarRules& rules, const LoopChoice& loops, bool& full) {
  full = false;
  if (rules.too_large()) {
    return Error{fmt::format("the grammar is too large: more than {} parts; make it smaller",
                             kMaxExpressions)};
  }
  if (rules.root < 0 || rules.rules[rules.root].expr < 0) return Error{"the grammar has no root"};
  for (const Expr& expr : rules.exprs) {
    if (expr.kind != ExprKind::Rule || rules.rules[expr.rule].expr >= 0) continue;
    return Error{fmt::format("rule '{}' is not defined", printable(rules.rules[expr.rule].name))};
  }
  return Builder(rules, loops).build(full);
}

}  // namespace ktx::text::grammar
