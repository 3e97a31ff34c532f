#include "lib/text/chat_template/template_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>

#include "lib/support/hash.h"
#include "lib/support/sha256.h"
#include "lib/support/strings.h"
#include "lib/text/chat_template/chat_template.h"
#include "lib/text/chat_template/jinja_parser.h"
#include "lib/text/chat_template/template_literals.h"

namespace ktx::text {
namespace {

constexpr size_t kMostTexts = 1000;  // of a list

struct Facts {
  std::string_view name, architectures, sha256;
  std::vector<uint32_t> literals;
};
std::span<const Facts> all_facts() {
  static const std::vector<Facts> kFacts = {
#define KTX_TEMPLATE_FACTS(name, architectures, file, sha256, ...) \
  {name, architectures, sha256, __VA_ARGS__},
#include "lib/text/chat_template/template_facts.def"
#undef KTX_TEMPLATE_FACTS
  };
  return kFacts;
}

std::string_view without_end_space(std::string_view text) {
  const size_t last = text.find_last_not_of(" \t\r\n");
  return last == text.npos ? std::string_view() : text.substr(0, last + 1);
}

uint32_t literal_hash(std::string_view text) {
  return static_cast<uint32_t>(hash_bytes(std::as_bytes(std::span(text))).low);
}

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

// Four words of letters in a row, or eight letters of a script without spaces: what a person
// would read as a sentence, and a model as something to follow.
bool reads_as_sentence(std::string_view line) {
  constexpr int kWords = 4, kLettersOfOthers = 8;
  int words = 0, letters = 0, others = 0;
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '\'' ||
           static_cast<unsigned char>(c) >= 0x80;
  };
  for (const char c : line) {
    others += static_cast<unsigned char>(c) >= 0xC0;
    if (others >= kLettersOfOthers) return true;
    if (is_letter(c)) {
      ++letters;
    } else if (is_space(c) || c == ',' || c == '.' || c == ':' || c == ';') {
      words += letters > 0;
      letters = 0;
      if (words >= kWords) return true;
    } else {
      words = letters = others = 0;  // of a tag, of JSON, of code
    }
  }
  return words + (letters > 0) >= kWords;
}

void add_once(std::vector<std::string>& texts, std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  text = without_end_space(text);
  if (text.empty() || texts.size() >= kMostTexts) return;
  if (std::ranges::find(texts, text) == texts.end()) texts.emplace_back(text);
}

// Lines, which control tokens end, too: <|im_end|> and the like.
std::vector<std::string_view> lines_of(std::string_view text) {
  constexpr std::string_view kOpen[] = {"<|", "<｜"}, kClose[] = {"|>", "｜>"};
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    size_t end = at + (text[at] == '\n');
    for (const int form : {0, 1}) {
      if (!text.substr(at).starts_with(kOpen[form])) continue;
      const size_t close = text.substr(0, at + 100).find(kClose[form], at + kOpen[form].size());
      if (close != text.npos) end = close + kClose[form].size();
    }
    if (end > at) {
      lines.push_back(text.substr(begin, at - begin));
      begin = end;
    }
    at = std::max(end, at + 1);
  }
  lines.push_back(text.substr(begin));
  return lines;
}

void add_sentences(std::vector<std::string>& sentences, std::string_view text) {
  for (const std::string_view line : lines_of(text)) {
    if (!reads_as_sentence(line)) continue;
    const bool known = std::ranges::any_of(sentences, [&](const std::string& sentence) {
      return sentence.find(without_end_space(line)) != sentence.npos;
    });
    if (!known) add_once(sentences, line);
  }
}

// What the template itself says in a plain conversation.
void add_rendered(std::vector<std::string>& sentences, const ChatTemplate& chat, bool tools) {
  using Json = nlohmann::ordered_json;
  RenderInput input;
  input.messages = Json::array({{{"role", "user"}, {"content", "x"}}});
  input.bos_token = input.eos_token = "";
  if (tools) {
    const Json parameters = {{"type", "object"}, {"properties", Json::object()}};
    input.tools = Json::array(
        {{{"type", "function"},
          {"function", {{"name", "x"}, {"description", "x"}, {"parameters", parameters}}}}});
  }
  const auto rendered = chat.render_marked(input);
  if (!rendered) return;
  size_t at = 0;
  for (const TextSpan& span : rendered->outside) {
    add_sentences(sentences, std::string_view(rendered->text).substr(at, span.begin - at));
    at = span.end;
  }
  add_sentences(sentences, std::string_view(rendered->text).substr(at));
}

// The share of literals that both have.
double likeness(const std::set<uint32_t>& found, const Facts& facts) {
  const auto both = static_cast<size_t>(
      std::ranges::count_if(facts.literals, [&](uint32_t hash) { return found.contains(hash); }));
  const size_t either = found.size() + facts.literals.size() - both;
  return either == 0 ? 0 : static_cast<double>(both) / static_cast<double>(either);
}

const Facts* nearest(const std::set<uint32_t>& found, std::string_view sha256,
                     std::string_view architecture) {
  constexpr double kNear = 0.25;
  const Facts* best = nullptr;
  double best_likeness = kNear;
  bool of_family = false;
  for (const Facts& facts : all_facts()) {
    if (facts.sha256 == sha256) return &facts;
    const auto architectures = split(facts.architectures, ' ');
    const bool family = !architecture.empty() &&
                        std::ranges::find(architectures, architecture) != architectures.end();
    const double like = likeness(found, facts);
    // One of the family counts however far it is.
    if (family > of_family || (family == of_family && like > best_likeness)) {
      best = &facts;
      best_likeness = like;
      of_family = family;
    }
  }
  return best;
}

std::vector<std::string> list_of(const std::set<std::string>& names,
                                 const std::set<std::string>& but) {
  std::vector<std::string> list;
  for (const std::string& name : names) {
    if (!but.contains(name) && list.size() < kMostTexts) list.push_back(name);
  }
  return list;
}

std::vector<uint32_t> hashes_of(std::span<const jinja::TemplateLiteral> literals) {
  std::vector<uint32_t> hashes;
  std::set<uint32_t> seen;
  for (const jinja::TemplateLiteral& literal : literals) {
    const uint32_t hash = literal_hash(literal.text);
    if (!without_end_space(literal.text).empty() && seen.insert(hash).second) {
      hashes.push_back(hash);
    }
  }
  return hashes;
}

}  // namespace

std::vector<uint32_t> literal_hashes(std::string_view source) {
  jinja::TemplateNames names;
  std::vector<jinja::TemplateLiteral> literals;
  if (const auto body = jinja::parse_template(source)) jinja::collect(*body, names, literals);
  return hashes_of(literals);
}

Result<TemplateReport> report_template(std::string_view source, std::string_view architecture) {
  const ChatTemplate chat = KTX_TRY(ChatTemplate::parse(source));
  const jinja::Body body = KTX_TRY(jinja::parse_template(source));
  jinja::TemplateNames names;
  std::vector<jinja::TemplateLiteral> literals;
  jinja::collect(body, names, literals);

  TemplateReport report;
  report.sha256 = to_hex(KTX_TRY(sha256(std::as_bytes(std::span(without_end_space(source))))));
  names.set.insert({"loop", "caller", "varargs", "kwargs", "self"});
  report.variables = list_of(names.variables, names.set);
  report.fields = list_of(names.fields, {});
  names.set.insert({"namespace", "range", "dict", "joiner", "cycler", "lipsum"});
  report.calls = list_of(names.calls, names.set);
  for (const bool tools : {false, true}) add_rendered(report.instructions, chat, tools);
  for (const jinja::TemplateLiteral& literal : literals) {
    if (literal.printed) add_sentences(report.instructions, literal.text);
  }

  const std::vector<uint32_t> hashes = hashes_of(literals);
  const std::set<uint32_t> found(hashes.begin(), hashes.end());
  const Facts* known = nearest(found, report.sha256, architecture);
  if (!known) return report;
  report.known = known->name;
  report.same = known->sha256 == report.sha256;
  const std::set<uint32_t> expected(known->literals.begin(), known->literals.end());
  for (const jinja::TemplateLiteral& literal : literals) {
    if (literal.printed && !expected.contains(literal_hash(literal.text))) {
      add_once(report.added, literal.text);
    }
  }
  for (const uint32_t hash : expected) report.missing += !found.contains(hash);
  return report;
}

std::string report_lines(const TemplateReport& report) {
  constexpr size_t kMostShown = 8, kWidest = 120;
  std::string out;
  const auto line = [&](std::string_view key, const std::string& value) {
    if (!value.empty()) out += fmt::format("{:<10} {}\n", key, value);
  };
  const auto names = [](const std::vector<std::string>& list) {
    std::vector<std::string> shown;
    for (const std::string& name : list) shown.push_back(printable(name));
    return join(shown, ", ");
  };
  const auto texts = [&](std::string_view key, const std::vector<std::string>& list) {
    for (size_t i = 0; i < std::min(kMostShown, list.size()); ++i) {
      line(i == 0 ? key : "", fmt::format("'{}'", printable(list[i], kWidest)));
    }
    if (list.size() > kMostShown) line("", fmt::format("and {} more", list.size() - kMostShown));
  };
  line("sha256", report.sha256);
  const std::string difference = report.same
                                     ? "this is its template"
                                     : fmt::format("not its text; {} texts are new, {} are missing",
                                                   report.added.size(), report.missing);
  line("known", report.known.empty() ? "no template like it"
                                     : fmt::format("{}: {}", report.known, difference));
  line("reads", names(report.variables));
  line("fields", names(report.fields));
  line("calls", names(report.calls));
  texts("says", report.instructions);
  if (!report.same) texts("adds", report.added);
  return out;
}

}  // namespace ktx::text
