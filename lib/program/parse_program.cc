// Parses the text form that print_program.cc writes: lines of words of the form key=value. A value
// is a list of items separated by commas, the fields of an item are separated by colons, and quoted
// names may contain either.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "lib/formats/layout.h"
#include "lib/program/program.h"
#include "lib/program/step_text.h"
#include "lib/support/strings.h"

namespace ktx::program {
namespace {

constexpr size_t kMaxTextBytes = 512u << 20;

// One line being read. take_* return nothing at the line's end or on bad syntax.
class Line {
 public:
  explicit Line(std::string_view text) : rest_(text) {}

  bool at_end() {
    while (!rest_.empty() && rest_[0] == ' ') rest_.remove_prefix(1);
    return rest_.empty();
  }
  bool take(char c) {
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  // A quoted name, or everything up to a space or one of = , :
  std::optional<std::string> take_name() {
    if (!take('"')) {
      const size_t end = std::min(rest_.find_first_of(" =,:\""), rest_.size());
      std::string name(rest_.substr(0, end));
      rest_.remove_prefix(end);
      if (name.empty()) return std::nullopt;
      return name;
    }
    std::string name;
    while (!rest_.empty() && rest_[0] != '"') {
      char c = rest_[0];
      rest_.remove_prefix(1);
      if (c != '\\') {
        name += c;
      } else if (take('x')) {
        unsigned value = 0;
        if (rest_.size() < 2) return std::nullopt;
        const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + 2, value, 16);
        if (error != std::errc() || end != rest_.data() + 2) return std::nullopt;
        name += static_cast<char>(value);
        rest_.remove_prefix(2);
      } else if (!rest_.empty()) {
        name += rest_[0];
        rest_.remove_prefix(1);
      }
    }
    if (!take('"')) return std::nullopt;
    return name;
  }

 private:
  std::string_view rest_;
};

template <class T>
bool to_number(const std::string& text, T& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

using Items = std::vector<std::vector<std::string>>;  // split at commas, then at colons
struct Word {
  std::string key;
  Items items;
  // The value as one plain name, or nothing.
  const std::string* single() const {
    return items.size() == 1 && items[0].size() == 1 ? &items[0][0] : nullptr;
  }
};

class Parser {
 public:
  Parser(std::string_view text, std::string file) : text_(text), file_(std::move(file)) {}

  Result<Program> run() {
    if (text_.size() > kMaxTextBytes) return fail("the text is too long");
    for (std::string_view row : split(text_, '\n')) {
      ++line_;
      if (row.starts_with('#')) continue;
      Line line(row);
      if (line.at_end()) continue;
      KTX_TRY(parse_line(line));
    }
    if (!header_) return fail("expected 'step-ir 1' in the first line");
    return std::move(program_);
  }

 private:
  using Handler = Status (Parser::*)(const std::vector<Word>&);

  Error fail(std::string_view what) const {
    return Error{fmt::format("{}:{}: {}", file_, std::max(line_, 1), what)};
  }

  Status parse_line(Line& line) {
    const auto kind = line.take_name();
    if (!kind) return fail("expected a word at the start of the line");
    if (!header_) {
      const auto version = line.at_end() ? std::nullopt : line.take_name();
      if (*kind != "step-ir" || version != "1")
        return fail("expected 'step-ir 1' in the first line");
      header_ = true;
      return {};
    }
    std::vector<Word> words;
    while (!line.at_end()) {
      Word word;
      auto key = line.take_name();
      if (!key || !line.take('=')) return fail("expected key=value");
      word.key = *key;
      do {
        std::vector<std::string> parts;
        do {
          auto part = line.take_name();
          if (!part) return fail(fmt::format("bad value of '{}'", printable(word.key)));
          parts.push_back(std::move(*part));
        } while (line.take(':'));
        word.items.push_back(std::move(parts));
      } while (line.take(','));
      words.push_back(std::move(word));
    }
    static const std::map<std::string, Handler, std::less<>> kHandlers = {
        {"buffer", &Parser::parse_buffer}, {"value", &Parser::parse_value},
        {"kv", &Parser::parse_kv},         {"blob", &Parser::parse_blob},
        {"step", &Parser::parse_step},     {"part", &Parser::parse_part},
        {"group", &Parser::parse_group},   {"launch", &Parser::parse_launch}};
    const auto handler = kHandlers.find(*kind);
    if (handler == kHandlers.end()) {
      return fail(fmt::format(
          "unknown item '{}'; expected buffer, value, kv, blob, step, part, group or launch",
          printable(*kind)));
    }
    return (this->*handler->second)(words);
  }

  template <class T>
  Status number(const Word& word, T& out) const {
    const std::string* text = word.single();
    if (!text || !to_number(*text, out)) {
      return fail(fmt::format("'{}' is no number that fits", printable(word.key)));
    }
    return {};
  }
  Status text(const Word& word, std::string& out) const {
    const std::string* value = word.single();
    if (!value) return fail(fmt::format("'{}' takes one name", printable(word.key)));
    out = *value;
    return {};
  }
  Error unknown(const Word& word) const {
    return fail(fmt::format("unknown key '{}'", printable(word.key)));
  }

  Status parse_buffer(const std::vector<Word>& words) {
    Buffer buffer;
    for (const Word& word : words) {
      if (word.key == "fixed")
        KTX_TRY(number(word, buffer.fixed_bytes));
      else if (word.key == "per_token")
        KTX_TRY(number(word, buffer.bytes_per_token));
      else if (word.key == "per_output")
        KTX_TRY(number(word, buffer.bytes_per_output));
      else
        return unknown(word);
    }
    program_.buffers.push_back(buffer);
    return {};
  }

  Status parse_value(const std::vector<Word>& words) {
    Value value;
    for (const Word& word : words) {
      if (word.key == "name")
        KTX_TRY(text(word, value.name));
      else if (word.key == "rows_per_row")
        KTX_TRY(number(word, value.rows_per_row));
      else if (word.key == "width")
        KTX_TRY(number(word, value.width));
      else if (word.key == "buffer")
        KTX_TRY(number(word, value.buffer));
      else if (word.key == "type") {
        const auto type = word.single() ? type_from_name(*word.single()) : std::nullopt;
        if (!type) return fail("unknown type; expected f32, i32, q8 or bf16");
        value.type = *type;
      } else if (word.key == "rows") {
        const auto rows = word.single() ? row_kind_from_name(*word.single()) : std::nullopt;
        if (!rows) return fail("unknown rows; expected token, output or single");
        value.rows = *rows;
      } else
        return unknown(word);
    }
    if (!value_ids_.emplace(value.name, program_.values.size()).second) {
      return fail(fmt::format("value '{}' appears twice", printable(value.name)));
    }
    program_.values.push_back(std::move(value));
    return {};
  }

  Status parse_kv(const std::vector<Word>& words) {
    KvSlot slot;
    std::string kind_name;
    for (const Word& word : words) {
      if (word.key == "layer")
        KTX_TRY(number(word, slot.layer));
      else if (word.key == "kv_heads")
        KTX_TRY(number(word, slot.kv_heads));
      else if (word.key == "key_dim")
        KTX_TRY(number(word, slot.key_dim));
      else if (word.key == "value_dim")
        KTX_TRY(number(word, slot.value_dim));
      else if (word.key == "device")
        KTX_TRY(text(word, slot.device));
      else if (word.key == "window")
        KTX_TRY(number(word, slot.window));
      else if (word.key == "kind") {
        KTX_TRY(text(word, kind_name));
        const auto* const kind = std::ranges::find(kBlockKindInfo, kind_name, &BlockKindInfo::name);
        if (kind == std::end(kBlockKindInfo)) return fail("unknown kind of a KV slot");
        slot.named = static_cast<SequenceKind>(kind - kBlockKindInfo);
      } else
        return unknown(word);
    }
    program_.kv_slots.push_back(std::move(slot));
    return {};
  }

  Status parse_blob(const std::vector<Word>& words) {
    Blob blob;
    for (const Word& word : words) {
      std::string text_value;
      if (word.key == "name")
        KTX_TRY(text(word, blob.name));
      else if (word.key == "rows")
        KTX_TRY(number(word, blob.rows));
      else if (word.key == "cols")
        KTX_TRY(number(word, blob.cols));
      else if (word.key == "matrices")
        KTX_TRY(number(word, blob.matrices));
      else if (word.key == "device")
        KTX_TRY(text(word, blob.device));
      else if (word.key == "dtype") {
        KTX_TRY(text(word, text_value));
        const auto dtype = dtype_from_name(text_value);
        if (!dtype) return fail(fmt::format("unknown dtype '{}'", printable(text_value)));
        blob.dtype = *dtype;
      } else if (word.key == "layout") {
        KTX_TRY(text(word, text_value));
        const auto layout = layout_from_name(text_value);
        if (!layout) return fail(fmt::format("unknown layout '{}'", printable(text_value)));
        blob.layout = *layout;
      } else if (word.key == "from") {
        TensorSlice slice;
        if (word.items.size() != 1 || word.items[0].size() != 3 ||
            !to_number(word.items[0][1], slice.first_row) ||
            !to_number(word.items[0][2], slice.row_count)) {
          return fail("expected from=TENSOR:FIRST_ROW:ROWS");
        }
        slice.tensor = word.items[0][0];
        blob.sources.push_back(std::move(slice));
      } else if (word.key == "constant") {
        for (const auto& item : word.items) {
          float value = 0;
          if (item.size() != 1 || !to_number(item[0], value)) return fail("bad constant");
          blob.constant.push_back(value);
        }
      } else
        return unknown(word);
    }
    if (!blob_ids_.emplace(blob.name, program_.blobs.size()).second) {
      return fail(fmt::format("blob '{}' appears twice", printable(blob.name)));
    }
    program_.blobs.push_back(std::move(blob));
    return {};
  }

  Status parse_views(const Word& word, std::vector<View>& out) const {
    for (const auto& item : word.items) {
      View view;
      if (item.size() == 1 && item[0] == "-") {
        out.push_back(view);
        continue;
      }
      const auto id = value_ids_.find(item[0]);
      if (item.size() != 3 || !to_number(item[1], view.offset) || !to_number(item[2], view.width)) {
        return fail("expected VALUE:OFFSET:WIDTH");
      }
      if (id == value_ids_.end()) return fail(fmt::format("no value '{}'", printable(item[0])));
      view.value = static_cast<ValueId>(id->second);
      out.push_back(view);
    }
    return {};
  }

  Status parse_attrs(const Word& word, StepAttrs& attrs) const {
    std::map<std::string, std::string> given;
    for (const auto& item : word.items) {
      if (item.size() != 2) return fail("expected attrs=NAME:NUMBER,...");
      given[item[0]] = item[1];
    }
    std::string bad;
    std::visit(
        [&](auto& a) {
          a.fields([&](const char* name, auto& field) {
            const auto it = given.find(name);
            if (it == given.end()) return;  // as by default
            if (!to_number(it->second, field))
              bad = name;
            else
              given.erase(it);
          });
        },
        attrs);
    if (bad.empty() && !given.empty()) bad = given.begin()->first;
    if (!bad.empty())
      return fail(fmt::format("attribute '{}' is unknown or no number", printable(bad)));
    return {};
  }

  Status parse_kernel(const Word& word, std::string& out) const {
    KTX_TRY(text(word, out));
    if (out == "-") out.clear();
    return {};
  }

  // FIRST:LAST; "-" for no last.
  template <class T>
  Status parse_range(const Word& word, T& first, T& last, T none) const {
    const bool two = word.items.size() == 1 && word.items[0].size() == 2;
    if (two && word.items[0][1] == "-") {
      last = none;
    } else if (!two || !to_number(word.items[0][1], last)) {
      return fail(fmt::format("expected {}=FIRST:LAST", printable(word.key)));
    }
    if (!to_number(word.items[0][0], first)) {
      return fail(fmt::format("expected {}=FIRST:LAST", printable(word.key)));
    }
    return {};
  }
  Status parse_numbers(const Word& word, std::vector<int32_t>& out) const {
    for (const auto& item : word.items) {
      int32_t number = 0;
      if (item.size() != 1 || !to_number(item[0], number)) {
        return fail(fmt::format("expected {}=NUMBER,...", printable(word.key)));
      }
      out.push_back(number);
    }
    return {};
  }
  Status parse_fused(const Word& word, FusedOp& out) const {
    const std::string* text = word.single();
    const auto op = text ? fused_op_from_name(*text) : std::nullopt;
    if (!op) return fail("unknown fused op");
    out = *op;
    return {};
  }

  Status parse_part(const std::vector<Word>& words) {
    program::Part part;
    for (const Word& word : words) {
      if (word.key == "kind") {
        const auto kind =
            word.single() ? program::part_kind_from_name(*word.single()) : std::nullopt;
        if (!kind) return fail("unknown kind of part; expected cpu, gpu or peer");
        part.kind = *kind;
      } else if (word.key == "device")
        KTX_TRY(text(word, part.device));
      else if (word.key == "from")
        KTX_TRY(text(word, part.from));
      else if (word.key == "steps")
        KTX_TRY(parse_range(word, part.first_step, part.step_count, 0));
      else
        return unknown(word);
    }
    program_.parts.push_back(std::move(part));
    return {};
  }

  Status parse_group(const std::vector<Word>& words) {
    program::FusedGroup group;
    for (const Word& word : words) {
      if (word.key == "fused")
        KTX_TRY(parse_fused(word, group.op));
      else if (word.key == "steps")
        KTX_TRY(parse_numbers(word, group.steps));
      else
        return unknown(word);
    }
    program_.groups.push_back(std::move(group));
    return {};
  }

  Status parse_launch(const std::vector<Word>& words) {
    program::Launch launch;
    for (const Word& word : words) {
      if (word.key == "kernel")
        KTX_TRY(text(word, launch.kernel));
      else if (word.key == "fused")
        KTX_TRY(parse_fused(word, launch.op.emplace()));
      else if (word.key == "steps")
        KTX_TRY(parse_numbers(word, launch.steps));
      else if (word.key == "tokens")
        KTX_TRY(parse_range(word, launch.least_tokens, launch.most_tokens, kernels::kAnyRows));
      else if (word.key == "sm")
        KTX_TRY(parse_range(word, launch.least_sm, launch.most_sm, kernels::kNewestSm));
      else if (word.key == "run")
        KTX_TRY(number(word, launch.least_run));
      else if (word.key == "needs") {
        for (const auto& item : word.items) {
          const auto need = item.size() == 1 ? kernels::needs_from_text(item[0]) : std::nullopt;
          if (!need) return fail("unknown need");
          launch.needs |= *need;
        }
      } else
        return unknown(word);
    }
    program_.launches.push_back(std::move(launch));
    return {};
  }

  Status parse_step(const std::vector<Word>& words) {
    Step step;
    std::string name;
    if (words.empty() || words[0].key != "op") return fail("a step begins with op=");
    KTX_TRY(text(words[0], name));
    const auto op = step_op_from_name(name);
    if (!op) return fail(fmt::format("unknown op '{}'", printable(name)));
    step.op = *op;
    step.attrs = default_attrs(*op);
    for (size_t i = 1; i < words.size(); ++i) {
      const Word& word = words[i];
      if (word.key == "module")
        KTX_TRY(text(word, step.module));
      else if (word.key == "layer")
        KTX_TRY(number(word, step.layer));
      else if (word.key == "device")
        KTX_TRY(text(word, step.device));
      else if (word.key == "in")
        KTX_TRY(parse_views(word, step.inputs));
      else if (word.key == "out")
        KTX_TRY(parse_views(word, step.outputs));
      else if (word.key == "attrs")
        KTX_TRY(parse_attrs(word, step.attrs));
      else if (word.key == "use")
        KTX_TRY(number(word, step.use));
      else if (word.key == "exact")
        KTX_TRY(parse_kernel(word, step.kernels[0]));
      else if (word.key == "fast")
        KTX_TRY(parse_kernel(word, step.kernels[1]));
      else if (word.key == "weight") {
        KTX_TRY(text(word, name));
        const auto id = blob_ids_.find(name);
        if (name != "-" && id == blob_ids_.end()) {
          return fail(fmt::format("no blob '{}'", printable(name)));
        }
        step.weights.push_back(name == "-" ? kAbsent : static_cast<BlobId>(id->second));
      } else
        return unknown(word);
    }
    program_.steps.push_back(std::move(step));
    return {};
  }

  std::string_view text_;
  std::string file_;
  int line_ = 0;
  bool header_ = false;
  Program program_;
  std::map<std::string, size_t, std::less<>> value_ids_;
  std::map<std::string, size_t, std::less<>> blob_ids_;
};

}  // namespace

Result<Program> parse(std::string_view text, const std::string& file) {
  return Parser(text, file).run();
}

}  // namespace ktx::program
