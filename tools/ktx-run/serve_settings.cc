#include "tools/ktx-run/serve_settings.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <optional>
#include <sstream>

#include "lib/support/line_note.h"
#include "lib/support/mapped_file.h"
#include "lib/support/strings.h"
#include "tools/ktx-run/run_commands.h"

namespace ktx::tools {
namespace {

// Where a value is from, for messages, and the value.
struct Setting {
  std::string place;
  std::string value;
};

// The options of `serve` that may be set elsewhere, as indices of the table.
std::vector<size_t> settings() {
  std::vector<size_t> out;
  const std::span<const OptionInfo> options = ktx_run_tool().options;
  for (size_t i = 0; i < options.size(); ++i) {
    const bool serves = (options[i].commands >> static_cast<int>(Command::Serve) & 1) != 0;
    if (serves && options[i].name != "config") out.push_back(i);
  }
  return out;
}

bool is_setting(std::string_view name) {
  const std::vector<size_t> all = settings();
  return std::any_of(all.begin(), all.end(),
                     [&](size_t i) { return ktx_run_tool().options[i].name == name; });
}

// "; did you mean 'port'?" for 'prot' and '--port'; where nothing is near, how to find out.
std::string near_setting(std::string_view name) {
  if (name == "threads") return "; did you mean 't'?";  // as in KTX_THREADS
  name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
  std::vector<std::string> known;
  for (size_t i : settings()) known.emplace_back(ktx_run_tool().options[i].name);
  const std::string near = did_you_mean(name, known);
  return near.empty() ? "; `ktx-run serve --help` lists them" : near;
}

// "max-batch" -> "KTX_SERVE_MAX_BATCH"; "t" -> "KTX_SERVE_THREADS".
std::string variable(std::string_view name, std::string_view prefix = "KTX_SERVE_") {
  std::string out(prefix);
  for (char c : name == "t" ? std::string_view("threads") : name) {
    out += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return out;
}

// "a value" stands for the value, whatever is in it.
std::string unquoted(std::string_view value) {
  const bool quoted = value.size() >= 2 && value.front() == '"' && value.back() == '"';
  return std::string(quoted ? value.substr(1, value.size() - 2) : value);
}

Result<std::map<std::string, Setting>> read_config(const std::string& path) {
  const std::string text = KTX_TRY(read_text_file(path));
  std::map<std::string, Setting> values;
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
    if (!is_setting(name)) {
      return Error{fmt::format("{}:{}: no option '{}'{}", path, number, name, near_setting(name))};
    }
    Setting setting = {fmt::format("{}:{}: {}", path, number, name),
                       unquoted(trim(content.substr(equals + 1)))};
    if (!values.emplace(name, std::move(setting)).second) {
      return Error{fmt::format("{}:{}: '{}' is there twice; leave one out", path, number, name)};
    }
  }
  return values;
}

}  // namespace

namespace {

// The value, and the variable that has it: KTX_SERVE_..., or KTX_... as it was called before.
std::optional<Setting> from_environment(std::string_view name) {
  for (const std::string_view prefix : {"KTX_SERVE_", "KTX_"}) {
    const std::string from = variable(name, prefix);
    const char* value = std::getenv(from.c_str());
    if (value == nullptr) continue;
    // Kubernetes sets KTX_PORT=tcp://ADDRESS:PORT beside a service that is called ktx.
    if (name == "port" && std::string_view(value).starts_with("tcp://")) continue;
    return Setting{from, value};
  }
  return std::nullopt;
}

// KTX_SERVE_PORT_8080_TCP_ADDR, KTX_SERVE_SERVICE_HOST: of Kubernetes.
bool is_service_link(std::string_view name, std::string_view value) {
  return name.starts_with("KTX_SERVE_SERVICE_") || name.starts_with("KTX_SERVE_PORT_") ||
         value.starts_with("tcp://") || value.starts_with("udp://");
}

}  // namespace

std::vector<std::string> unknown_serve_variables() {
  constexpr std::string_view kPrefix = "KTX_SERVE_";
  std::vector<std::string> known = {"CONFIG"}, lines;  // without the prefix: that one is right
  for (const size_t option : settings()) {
    known.push_back(variable(ktx_run_tool().options[option].name, ""));
  }
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string_view setting = *each;
    const std::string_view name = setting.substr(0, setting.find('='));
    const std::string_view value = setting.substr(std::min(name.size() + 1, setting.size()));
    if (!name.starts_with(kPrefix) || is_service_link(name, value)) continue;
    const std::string_view option = name.substr(kPrefix.size());
    if (std::count(known.begin(), known.end(), option) > 0) continue;
    const std::string near = nearest_name(option, known);
    lines.push_back(fmt::format("{} is no option and has no effect; {}", printable(name),
                                near.empty() ? "`ktx-run serve --help` lists them"
                                             : fmt::format("did you mean {}{}?", kPrefix, near)));
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

Status add_serve_settings(ParsedLine& line) {
  std::string config = from_environment("config").value_or(Setting()).value;
  if (const Given* given = line.find(ktx_run_tool(), "config")) config = given->values.back();
  std::map<std::string, Setting> values;
  if (!config.empty()) values = KTX_TRY(read_config(config));
  for (const size_t option : settings()) {
    const std::string name(ktx_run_tool().options[option].name);
    if (auto found = from_environment(name)) values[name] = std::move(*found);
    const auto setting = values.find(name);
    if (setting == values.end() || line.find(ktx_run_tool(), name)) continue;
    line.given.push_back(
        given_as(ktx_run_tool(), option, setting->second.place, setting->second.value));
  }
  return {};
}

}  // namespace ktx::tools
