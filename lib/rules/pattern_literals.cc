#include "lib/rules/pattern_literals.h"

#include <algorithm>
#include <cstdint>
#include <optional>

namespace ktx::rules {
namespace {

constexpr size_t kMaxStrings = 512;    // of one set, as `(0|1|...|383)` has
constexpr size_t kMaxProduct = 16;     // where two sets of several strings meet
constexpr size_t kMaxSetBytes = 8192;  // what is longer becomes two sets
constexpr int kMaxDepth = 50;
constexpr int kMaxRepeats = 4;

// What part of a pattern matches: exactly `strings` (more is allowed, less is not), or,
// if it is open, anything that contains one string of each of `sets`.
struct Part {
  bool open = false;
  LiteralSet strings = {""};
  std::vector<LiteralSet> sets;
};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_word(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

size_t shortest(const LiteralSet& set) {
  size_t bytes = SIZE_MAX;
  for (const std::string& text : set) bytes = std::min(bytes, text.size());
  return bytes;
}

size_t total_bytes(const LiteralSet& set) {
  size_t bytes = 0;
  for (const std::string& text : set) bytes += text.size();
  return bytes;
}

void add_set(const LiteralSet& strings, std::vector<LiteralSet>& sets) {
  if (strings.empty() || shortest(strings) < 2) return;
  sets.push_back(strings);
}

void remove_doubles(LiteralSet& strings) {
  std::sort(strings.begin(), strings.end());
  strings.erase(std::unique(strings.begin(), strings.end()), strings.end());
}

// A sequence under way: strings that end where the next part begins.
void append(Part& sequence, Part&& next) {
  if (next.open) {
    add_set(sequence.strings, sequence.sets);
    sequence.sets.insert(sequence.sets.end(), next.sets.begin(), next.sets.end());
    sequence.strings = {""};
    sequence.open = true;
    return;
  }
  const size_t a = sequence.strings.size();
  const size_t b = next.strings.size();
  const bool fits =
      a * b <= std::max({kMaxProduct, a, b}) &&
      total_bytes(sequence.strings) * b + total_bytes(next.strings) * a <= kMaxSetBytes;
  if (!fits) {
    add_set(sequence.strings, sequence.sets);
    sequence.strings = std::move(next.strings);
    sequence.open = true;
    return;
  }
  LiteralSet product;
  for (const std::string& first : sequence.strings) {
    for (const std::string& second : next.strings) product.push_back(first + second);
  }
  sequence.strings = std::move(product);
}

// The end of a sequence: what is under way counts as well.
Part finish(Part sequence) {
  if (sequence.open) {
    add_set(sequence.strings, sequence.sets);
    sequence.strings = {""};
  }
  return sequence;
}

// The set of a part that says most: long strings, few of them.
const LiteralSet* best_set(const Part& part) {
  const LiteralSet* best = nullptr;
  for (const LiteralSet& set : part.sets) {
    if (!best || shortest(set) > shortest(*best)) best = &set;
  }
  return best;
}

Part either(std::vector<Part> branches) {
  if (branches.size() == 1) return std::move(branches.front());
  const bool closed =
      std::none_of(branches.begin(), branches.end(), [](const Part& part) { return part.open; });
  LiteralSet all;
  for (const Part& branch : branches) {
    const LiteralSet* set = branch.open ? best_set(branch) : &branch.strings;
    if (!set) return {true, {""}, {}};
    all.insert(all.end(), set->begin(), set->end());
  }
  remove_doubles(all);
  if (all.size() > kMaxStrings) return {true, {""}, {}};
  if (closed) return {false, std::move(all), {}};
  Part part = {true, {""}, {}};
  add_set(all, part.sets);
  return part;
}

class Reader {
 public:
  explicit Reader(std::string_view pattern) : text_(pattern) {}

  // Nothing: not understood.
  std::optional<Part> read() {
    std::optional<Part> part = alternatives(0);
    return at_ < text_.size() ? std::nullopt : part;
  }

 private:
  bool ends() const { return at_ >= text_.size(); }
  char peek() const { return text_[at_]; }
  bool take(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  std::optional<Part> alternatives(int depth) {
    if (depth > kMaxDepth) return std::nullopt;
    std::vector<Part> branches;
    do {
      Part sequence;
      while (!ends() && peek() != '|' && peek() != ')') {
        std::optional<Part> part = repeated(depth);
        if (!part) return std::nullopt;
        append(sequence, std::move(*part));
      }
      branches.push_back(finish(std::move(sequence)));
    } while (take("|"));
    return either(std::move(branches));
  }

  std::optional<Part> repeated(int depth) {
    std::optional<Part> part = atom(depth);
    while (part && !ends()) {
      int least = 0;
      int most = -1;  // -1: any number
      if (take("*")) {
      } else if (take("+")) {
        least = 1;
      } else if (take("?")) {
        most = 1;
      } else if (peek() == '{') {
        if (!counts(least, most)) return std::nullopt;
      } else {
        return part;
      }
      if (!take("?")) take("+");  // lazy or possessive: nothing more can match
      part = times(std::move(*part), least, most);
    }
    return part;
  }

  bool counts(int& least, int& most) {
    ++at_;
    if (!number(least)) return false;
    most = least;
    if (take(",")) {
      most = -1;
      if (!ends() && peek() != '}' && !number(most)) return false;
    }
    return take("}");
  }

  bool number(int& value) {
    value = 0;
    const size_t begin = at_;
    while (!ends() && is_digit(peek()) && at_ - begin < 6)
      value = value * 10 + (text_[at_++] - '0');
    return at_ > begin;
  }

  static Part times(Part part, int least, int most) {
    if (least == 0) {
      if (most != 1 || part.open) return {true, {""}, {}};
      part.strings.emplace_back();
      remove_doubles(part.strings);
      return part;
    }
    if (least == most && least <= kMaxRepeats && !part.open) {
      Part sequence;
      for (int i = 0; i < least; ++i) append(sequence, Part(part));
      return finish(std::move(sequence));
    }
    if (!part.open) add_set(part.strings, part.sets);
    part.open = true;
    part.strings = {""};
    return part;
  }

  std::optional<Part> atom(int depth) {
    const char c = text_[at_];
    if (c < ' ' || c > '~' || c == ']' || c == '{' || c == '}') return std::nullopt;
    if (c == '(') return group(depth);
    if (c == '[') return set();
    if (c == '\\') return escape();
    ++at_;
    if (c == '.') return Part{true, {""}, {}};
    if (c == '^' || c == '$') return Part{};
    return Part{false, {std::string(1, c)}, {}};
  }

  std::optional<Part> group(int depth) {
    ++at_;
    bool zero_width = false;
    if (take("?P<")) {
      while (!ends() && is_word(peek())) ++at_;
      if (!take(">")) return std::nullopt;
    } else if (take("?=") || take("?!") || take("?<=") || take("?<!")) {
      zero_width = true;
    } else if (!ends() && (peek() == '?' || peek() == '*')) {
      if (!take("?:")) return std::nullopt;
    }
    std::optional<Part> part = alternatives(depth + 1);
    if (!part || !take(")")) return std::nullopt;
    return zero_width ? Part{} : part;
  }

  static Part digits() { return {false, {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}, {}}; }

  std::optional<Part> escape() {
    if (at_ + 1 >= text_.size()) return std::nullopt;
    const char c = text_[at_ + 1];
    if (c < ' ' || c > '~') return std::nullopt;
    at_ += 2;
    if (c == 'd') return digits();
    if (c == 'D' || c == 'w' || c == 'W' || c == 's' || c == 'S') return Part{true, {""}, {}};
    if (c == 'b' || c == 'B' || c == 'A' || c == 'Z') return Part{};
    if (is_word(c) && c != '_') return std::nullopt;
    return Part{false, {std::string(1, c)}, {}};
  }

  std::optional<Part> set() {
    ++at_;
    const bool negated = take("^");
    LiteralSet members;
    bool many = negated;
    for (bool first = true;; first = false) {
      if (ends() || peek() < ' ' || peek() > '~') return std::nullopt;
      if (peek() == ']' && !first) break;
      if (take("\\d")) {
        const Part all = digits();
        members.insert(members.end(), all.strings.begin(), all.strings.end());
        continue;
      }
      if (take("\\w") || take("\\s") || take("\\D") || take("\\W") || take("\\S")) {
        many = true;
        continue;
      }
      const std::optional<char> low = member();
      if (!low) return std::nullopt;
      char high = *low;
      const bool range = at_ + 1 < text_.size() && peek() == '-' && text_[at_ + 1] != ']' &&
                         text_[at_ + 1] != '\\';
      if (range) {
        ++at_;
        const std::optional<char> last = member();
        if (!last || *last < *low) return std::nullopt;
        high = *last;
      } else if (at_ + 1 < text_.size() && peek() == '-' && text_[at_ + 1] == '\\') {
        return std::nullopt;
      }
      for (char c = *low; c <= high; ++c) members.emplace_back(1, c);
    }
    ++at_;
    if (many || members.size() > kMaxProduct) return Part{true, {""}, {}};
    remove_doubles(members);
    return Part{false, std::move(members), {}};
  }

  // One character of a set, escaped or not. "[" may begin what PCRE2 reads otherwise.
  std::optional<char> member() {
    if (ends()) return std::nullopt;
    char c = text_[at_++];
    if (c == '[') return std::nullopt;
    if (c == '\\') {
      if (ends() || is_word(peek())) return std::nullopt;
      c = text_[at_++];
    }
    if (c < ' ' || c > '~') return std::nullopt;
    return c;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::vector<LiteralSet> required_literals(std::string_view pattern) {
  std::optional<Part> part = Reader(pattern).read();
  if (!part) return {};
  if (!part->open) add_set(part->strings, part->sets);
  return std::move(part->sets);
}

}  // namespace ktx::rules
