#include "tools/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "lib/support/strings.h"
#include "tools/foreign_flags.h"

namespace ktx::tools {
namespace {

// "--ctx=4096" in its parts; nothing for a word.
struct Flag {
  std::string_view dashes, name;
  std::optional<std::string_view> value;
  std::string shown() const { return printable(std::string(dashes) + std::string(name)); }
};

std::optional<Flag> as_flag(std::string_view arg) {
  const size_t dashes = arg.starts_with("--") ? 2 : arg.starts_with("-") ? 1 : 0;
  if (dashes == 0 || arg.size() == dashes) return std::nullopt;
  Flag flag = {arg.substr(0, dashes), arg.substr(dashes), std::nullopt};
  const size_t equals = flag.name.find('=');
  if (equals != flag.name.npos) {
    flag.value = flag.name.substr(equals + 1);
    flag.name = flag.name.substr(0, equals);
  }
  return flag;
}

// The dashes of word processors, which look like '-' and are not.
bool begins_with_a_typeset_dash(std::string_view arg) {
  for (const char* dash : {"\u2010", "\u2011", "\u2012", "\u2013", "\u2014", "\u2015", "\u2212"}) {
    if (arg.starts_with(dash) && arg.size() > 3 && arg[3] != ' ') return true;
  }
  return false;
}

class Parser {
 public:
  Parser(const Tool& tool, std::span<const std::string> args) : tool_(tool), args_(args) {}

  ParsedLine run() {
    find_command();
    for (size_t i = 0; i < args_.size(); ++i) {
      if (args_[i] == "--") {
        for (++i; i < args_.size(); ++i) take_word(i);
      } else if (const std::optional<Flag> flag = as_flag(args_[i])) {
        take_flag(*flag, i);
      } else if (begins_with_a_typeset_dash(args_[i])) {
        mistake("'{}' begins with a typeset dash; options begin with '-'", printable(args_[i]));
      } else {
        take_word(i);
      }
    }
    return std::move(line_);
  }

 private:
  template <class... Args>
  void mistake(fmt::format_string<Args...> text, Args&&... args) {
    line_.mistakes.push_back(fmt::format(text, std::forward<Args>(args)...));
  }

  bool has(const OptionInfo& option) const {
    return line_.command < 0 || (option.commands >> line_.command & 1) != 0;
  }

  const OptionInfo* find(std::string_view name, bool of_any_command = false) const {
    for (const OptionInfo& option : tool_.options) {
      if (option.name == name && option.form != Form::Prefix && (of_any_command || has(option))) {
        return &option;
      }
    }
    return nullptr;
  }

  static bool takes_next(const OptionInfo& option, const Flag& flag) {
    return option.form != Form::Switch && !flag.value;
  }

  // The first word that names a command, wherever it stands.
  void find_command() {
    if (tool_.commands.size() == 1) {
      line_.command = 0;
      return;
    }
    bool first = true;
    for (size_t i = 0; i < args_.size() && args_[i] != "--"; ++i) {
      if (const std::optional<Flag> flag = as_flag(args_[i])) {
        const OptionInfo* option = find(flag->name, /*of_any_command=*/true);
        if (option && takes_next(*option, *flag)) ++i;
        continue;
      }
      for (size_t c = 0; c < tool_.commands.size(); ++c) {
        if (tool_.commands[c].name != args_[i]) continue;
        line_.command = static_cast<int>(c);
        line_.command_first = first;
        command_at_ = i;
        return;
      }
      first = false;
    }
  }

  void take_word(size_t i) {
    if (i != command_at_) line_.words.push_back(args_[i]);
  }

  void take_flag(const Flag& flag, size_t& i) {
    if (take_prefix(flag)) return;
    if (const OptionInfo* option = find(flag.name)) return take_option(*option, flag, i);
    if (flag.name == "help" || flag.name == "h" || flag.name == "?") {
      line_.help = true;
    } else if (flag.name == "version" || flag.name == "V") {
      line_.version = true;
    } else if (flag.name == "man-page") {
      line_.man_page = true;
    } else if (flag.name == "completion") {
      const bool next = !flag.value && i + 1 < args_.size();
      line_.completion = flag.value ? std::string(*flag.value) : next ? args_[++i] : "";
      if (line_.completion.empty())
        mistake("--completion takes the name of a shell: bash, zsh, fish");
    } else {
      const OptionInfo* other = find(flag.name, /*of_any_command=*/true);
      if (other && takes_next(*other, flag)) ++i;
      say_unknown(flag, other);
    }
  }

  bool take_prefix(const Flag& flag) {
    for (const OptionInfo& option : tool_.options) {
      if (option.form != Form::Prefix || !flag.name.starts_with(option.name)) continue;
      std::string value(flag.name.substr(option.name.size()));
      if (flag.value) value += "=" + std::string(*flag.value);
      given(option, flag.shown()).values.push_back(std::move(value));
      return true;
    }
    return false;
  }

  Given& given(const OptionInfo& option, const std::string& shown) {
    const auto index = static_cast<size_t>(&option - tool_.options.data());
    for (Given& known : line_.given) {
      if (known.option == index) return known;
    }
    return line_.given.emplace_back(Given{index, shown, {}});
  }

  void take_option(const OptionInfo& option, const Flag& flag, size_t& i) {
    const size_t known = line_.given.size();
    Given& into = given(option, flag.shown());
    const bool again = line_.given.size() == known;
    if (again && (option.form == Form::Switch || option.form == Form::Value)) {
      mistake("{} is given twice; leave one out", flag.shown());
    }
    std::string_view value = flag.value.value_or("");
    if (takes_next(option, flag)) {
      if (++i == args_.size()) {
        mistake("{} takes a value, and nothing follows it", flag.shown());
        return;
      }
      value = args_[i];
    }
    Given cut = given_as(tool_, into.option, "", value);
    if (option.form == Form::Switch && !flag.value) cut.values = {"on"};
    into.values.insert(into.values.end(), cut.values.begin(), cut.values.end());
  }

  // `other`: the option, when another command has it.
  void say_unknown(const Flag& flag, const OptionInfo* other) {
    const std::string advice = foreign_flag_advice(tool_.foreign, flag.name);
    if (!advice.empty()) {
      return mistake("no option '{}' here: {}", flag.shown(), advice);
    }
    if (other) {
      std::vector<std::string> owners;
      for (size_t c = 0; c < tool_.commands.size(); ++c) {
        if (other->commands >> c & 1) owners.emplace_back(tool_.commands[c].name);
      }
      return mistake("no option '{}' here: {} {} has it", flag.shown(), tool_.name,
                     fmt::join(owners, ", "));
    }
    const OptionInfo* letter = find(flag.name.substr(0, 1));  // -n128
    const bool number = flag.name.find_first_not_of("0123456789,", 1) == flag.name.npos;
    if (letter && number && flag.dashes.size() == 1) {
      return mistake("no option '{}'; write {} {}", flag.shown(), shown_option(letter->name),
                     flag.name.substr(1));
    }
    std::vector<std::string> names = {"help", "version"};
    for (const OptionInfo& option : tool_.options) {
      if (has(option)) names.emplace_back(option.name);
    }
    const std::string nearest = nearest_name(flag.name, names);
    if (!nearest.empty() && flag.name.size() > 1) {
      mistake("no option '{}'; did you mean '{}'?", flag.shown(), shown_option(nearest));
    } else {
      mistake("no option '{}'; --help lists them", flag.shown());
    }
  }

  const Tool& tool_;
  std::span<const std::string> args_;
  size_t command_at_ = SIZE_MAX;
  ParsedLine line_;
};

}  // namespace

const Given* ParsedLine::find(const Tool& tool, std::string_view option) const {
  for (const Given& entry : given) {
    if (tool.options[entry.option].name == option) return &entry;
  }
  return nullptr;
}

std::string shown_option(std::string_view name) {
  return fmt::format("{}{}", name.size() > 1 ? "--" : "-", name);
}

Given given_as(const Tool& tool, size_t option, std::string shown, std::string_view value) {
  Given out = {option, std::move(shown), {}};
  if (tool.options[option].form == Form::List) {
    for (const std::string_view part : split(value, ',')) out.values.emplace_back(part);
  } else {
    out.values.emplace_back(value);
  }
  return out;
}

ParsedLine parse_line(const Tool& tool, std::span<const std::string> args) {
  return Parser(tool, args).run();
}

}  // namespace ktx::tools
