#include "tools/ktx-run/serve_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <sstream>

#include "lib/support/mapped_file.h"
#include "lib/support/strings.h"

namespace ktx::tools {
namespace {

constexpr const char* kNames[] = {
#define KTX_SETTING(name) name,
#include "tools/ktx-run/serve_settings.def"
};

// "max-batch" -> "KTX_MAX_BATCH"; "t" -> "KTX_THREADS".
std::string variable(const std::string& name) {
  std::string out = "KTX_";
  for (char c : name == "t" ? std::string("threads") : name) {
    out += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return out;
}

// The value of --name, when an argument gives it; "" may be one.
bool given(const std::vector<std::string>& args, const std::string& name) {
  return std::any_of(args.begin(), args.end(), [&](const std::string& arg) {
    const size_t dashes = arg.find_first_not_of('-');
    if (dashes == 0 || dashes == std::string::npos) return false;
    return arg.compare(dashes, std::string::npos, name) == 0 ||
           arg.compare(dashes, name.size() + 1, name + "=") == 0;
  });
}

// "a value" stands for the value, whatever is in it.
std::string unquoted(std::string_view value) {
  const bool quoted = value.size() >= 2 && value.front() == '"' && value.back() == '"';
  return std::string(quoted ? value.substr(1, value.size() - 2) : value);
}

Result<std::map<std::string, std::string>> read_config(const std::string& path) {
  const std::string text = KTX_TRY(read_text_file(path));
  std::map<std::string, std::string> values;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::string_view content = without_note(line);
    if (content.empty()) continue;
    const size_t equals = content.find('=');
    const std::string name(trim(content.substr(0, equals)));
    if (equals == std::string_view::npos) {
      return Error{fmt::format("{}:{}: expected 'name = value'", path, number)};
    }
    if (std::find(std::begin(kNames), std::end(kNames), name) == std::end(kNames)) {
      return Error{fmt::format("{}:{}: no option '{}'; `ktx-run serve --help` lists them", path,
                               number, name)};
    }
    if (!values.emplace(name, unquoted(trim(content.substr(equals + 1)))).second) {
      return Error{fmt::format("{}:{}: '{}' is there twice; leave one out", path, number, name)};
    }
  }
  return values;
}

}  // namespace

std::string_view without_note(std::string_view line) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (line.substr(0, kByteOrderMark.size()) == kByteOrderMark) {
    line.remove_prefix(kByteOrderMark.size());
  }
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') quoted = !quoted;
    const bool begins = i == 0 || line[i - 1] == ' ' || line[i - 1] == '\t';
    if (line[i] == '#' && begins && !quoted) return trim(line.substr(0, i));
  }
  return trim(line);
}

Result<std::vector<std::string>> add_serve_settings(int argc, char** argv) {
  std::vector<std::string> args(argv, argv + argc);
  if (args.size() < 2 || args[1] != "serve") return args;
  const char* configured = std::getenv("KTX_CONFIG");
  std::string config = configured == nullptr ? "" : configured;
  for (size_t i = 2; i < args.size(); ++i) {
    const std::string name =
        args[i].substr(std::min(args[i].size(), args[i].find_first_not_of('-')));
    if (name == "config" && i + 1 < args.size()) config = args[i + 1];
    if (name.rfind("config=", 0) == 0) config = name.substr(7);
  }
  std::map<std::string, std::string> values;
  if (!config.empty()) values = KTX_TRY(read_config(config));
  const std::vector<std::string> own = args;
  for (const char* name : kNames) {
    if (const char* value = std::getenv(variable(name).c_str())) values[name] = value;
    const auto it = values.find(name);
    if (it == values.end() || given(own, name)) continue;
    args.push_back(
        fmt::format("{}{}={}", std::string_view(name).size() == 1 ? "-" : "--", name, it->second));
  }
  return args;
}

}  // namespace ktx::tools
