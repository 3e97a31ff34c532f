#include "lib/rules/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "lib/support/strings.h"

namespace ktx::rules {
namespace {

constexpr bool Hard = false;
constexpr bool Lowerable = true;

constexpr CheckInfo kChecks[] = {
#define KTX_CHECK(code, row, lowerable, severity, title, explanation, mistake, mend, test) \
  {code, row, lowerable, severity, title, explanation, mistake, mend, test},
#include "lib/rules/checks.def"
#undef KTX_CHECK
};

// "ktx-r001" -> "R001"
std::string plain_code(std::string_view code) {
  std::string out(code);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return out.starts_with("KTX-") ? out.substr(4) : out;
}

std::string indented(std::string_view text, std::string_view indent) {
  std::string out;
  for (std::string_view line : split(text, '\n')) out += fmt::format("{}{}\n", indent, line);
  return out;
}

std::string cell(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

std::span<const CheckInfo> all_checks() {
  return kChecks;
}

const CheckInfo* find_check(std::string_view code) {
  const std::string plain = plain_code(code);
  for (const CheckInfo& check : kChecks) {
    if (check.code == plain) return &check;
  }
  return nullptr;
}

std::string nearest_check(std::string_view code) {
  std::vector<std::string> codes;
  for (const CheckInfo& check : kChecks) codes.emplace_back(check.code);
  const std::string nearest = nearest_name(plain_code(code), codes);
  return nearest.empty() ? "" : fmt::format("; did you mean 'KTX-{}'?", nearest);
}

std::string list_checks() {
  std::string out;
  for (const CheckInfo& check : kChecks) {
    out += fmt::format("KTX-{}  {} ({})\n", check.code, check.title, check.severity);
  }
  return out;
}

std::string explain_check(const CheckInfo& check) {
  std::string out = fmt::format("KTX-{}: {} ({})\n", check.code, check.title, check.severity);
  if (!check.explanation.empty()) out += fmt::format("\n{}\n", check.explanation);
  if (!check.mistake.empty()) out += fmt::format("\nmistake:\n{}", indented(check.mistake, "  "));
  if (!check.mend.empty()) out += fmt::format("\nmend:\n{}", indented(check.mend, "  "));
  out += check.lowerable ? fmt::format(
                               "\n-Wno-error=KTX-{0} makes an error of it a warning, -Wno-KTX-{0} "
                               "silences it\n",
                               check.code)
                         : "\nthis is always an error\n";
  return out;
}

std::string checks_markdown() {
  std::string out =
      "# Checks\n\n"
      "Made from `lib/rules/checks.def` (a test keeps it current). `ktx-compile --explain-code "
      "KTX-R001` prints one with an example of the mistake and its mend. *Row*: place in the "
      "catalogue of failures that the checks go back to. Golden cases are the files of "
      "`tests/golden/rules` that begin with the code; codes in italics are always errors.\n\n"
      "| code | row | severity | what is caught | tested by |\n|---|---|---|---|---|\n";
  for (const CheckInfo& check : kChecks) {
    const std::string code = fmt::format("{0}KTX-{1}{0}", check.lowerable ? "" : "*", check.code);
    const std::string row = check.row ? fmt::format("{}", check.row) : "";
    const std::string test = check.test.empty() ? fmt::format("`golden/rules/{}*`", check.code)
                                                : fmt::format("`{}`", check.test);
    out += fmt::format("| {} | {} | {} | {} | {} |\n", code, row, cell(check.severity),
                       cell(check.title), test);
  }
  out +=
      "\nRows without a check of their own: 18 (slow start: plans are packed ahead and mapped; "
      "`--estimate` shows the bytes), 20 (low GPU use: `--estimate` shows the memory left on each "
      "device).\n";
  for (const CheckInfo& check : kChecks) {
    out += fmt::format("\n## KTX-{}\n\n{}.", check.code, check.title);
    if (!check.explanation.empty()) out += fmt::format(" {}", check.explanation);
    out += "\n";
    if (!check.mistake.empty()) {
      out += fmt::format("\n```yaml\n# mistake\n{}\n```\n", check.mistake);
    }
    if (!check.mend.empty()) out += fmt::format("\n```yaml\n# mend\n{}\n```\n", check.mend);
  }
  return out;
}

Status add_warning_flag(std::string_view flag, DiagPolicy& policy) {
  if (flag == "error") {
    policy.warnings_are_errors = true;
    return {};
  }
  std::set<std::string, std::less<>>* codes = &policy.off;
  std::string_view code = flag;
  if (code.starts_with("error=")) {
    codes = &policy.errors;
    code.remove_prefix(6);
  } else if (code.starts_with("no-error=")) {
    codes = &policy.not_errors;
    code.remove_prefix(9);
  } else if (code.starts_with("no-")) {
    code.remove_prefix(3);
  } else {
    return Error{fmt::format("-W{}: write -Werror, -Werror=CODE, -Wno-error=CODE or -Wno-CODE",
                             printable(flag))};
  }
  const CheckInfo* check = find_check(code);
  if (!check) {
    return Error{fmt::format("-W{}: no check '{}'{}", printable(flag), printable(code),
                             nearest_check(code))};
  }
  if (!check->lowerable && codes != &policy.errors) {
    return Error{fmt::format("-W{}: KTX-{} ({}) is always an error", printable(flag), check->code,
                             check->title)};
  }
  codes->insert(std::string(check->code));
  return {};
}

}  // namespace ktx::rules
