#include "tools/completion.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "lib/support/strings.h"

namespace ktx::tools {
namespace {

// What follows an option.
struct Value {
  bool any = false;    // something does
  bool file = false;   // the name of a file or folder
  std::string choice;  // "auto on off", or ""
};

Value value_of(const OptionInfo& option) {
  Value value;
  value.any = option.form != Form::Switch && option.form != Form::Prefix;
  const std::string_view text = option.value;
  for (const std::string_view word : {"FILE", "DIR", "PATH", ".gguf", ".json", ".html"}) {
    value.file = value.file || text.find(word) != text.npos;
  }
  const bool choices = text.find('|') != text.npos;
  if (choices && !value.file) {
    for (const std::string_view part : split(text, '|')) {
      // "PASS|all": a name of the user's is no choice.
      if (!part.empty() && (part[0] < 'A' || part[0] > 'Z')) {
        value.choice += fmt::format("{}{}", value.choice.empty() ? "" : " ", part);
      }
    }
  }
  return value;
}

bool has_commands(const Tool& tool) {
  return tool.commands.size() > 1;
}

// The options of a command, and those that all have.
std::vector<const OptionInfo*> options_of(const Tool& tool, size_t command) {
  std::vector<const OptionInfo*> options;
  for (const OptionInfo& option : tool.options) {
    if ((option.commands >> command & 1) != 0) options.push_back(&option);
  }
  return options;
}

std::string flag(const OptionInfo& option) {
  return option.form == Form::Prefix ? fmt::format("-{}", option.name) : shown_option(option.name);
}

// A name that shells take for a function: "_ktx_run".
std::string function_name(const Tool& tool) {
  std::string name = fmt::format("_{}", tool.name);
  std::ranges::replace(name, '-', '_');
  return name;
}

std::string command_names(const Tool& tool, std::string_view separator = " ") {
  std::string names;
  for (const CommandInfo& command : tool.commands) {
    names += fmt::format("{}{}", names.empty() ? "" : separator, command.name);
  }
  return names;
}

// One line of a case over "COMMAND/WORD BEFORE".
std::string bash_value(const Tool& tool, size_t command, const OptionInfo& option) {
  const Value value = value_of(option);
  if (!value.any) return "";
  const std::string key = fmt::format("{}/{}", tool.commands[command].name, flag(option));
  if (!value.choice.empty()) {
    return fmt::format("    {}) COMPREPLY=($(compgen -W \"{}\" -- \"$cur\")); return ;;\n", key,
                       value.choice);
  }
  if (value.file)
    return fmt::format("    {}) COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n", key);
  return fmt::format("    {}) return ;;\n", key);
}

std::string bash(const Tool& tool) {
  std::string values, flags;
  for (size_t c = 0; c < tool.commands.size(); ++c) {
    std::string names;
    for (const OptionInfo* option : options_of(tool, c)) {
      values += bash_value(tool, c, *option);
      names += flag(*option) + " ";
    }
    flags += fmt::format("    {}) flags=\"{}--help\" ;;\n",
                         has_commands(tool) ? tool.commands[c].name : "''", names);
  }
  const std::string find_command =
      has_commands(tool) ? fmt::format(R"(  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case $word in {}) command=$word; break ;; esac
  done
)",
                                       command_names(tool, "|"))
                         : "";
  const std::string no_flag = has_commands(tool) ? fmt::format(R"(  elif [ -z "$command" ]; then
    COMPREPLY=($(compgen -W "{}" -- "$cur"))
)",
                                                               command_names(tool))
                                                 : "";
  return fmt::format(R"(# Completions of {0} for bash, made by: {0} --completion bash
{1}() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}}
  local command='' word flags='--help --version --completion'
  # Bash cuts --option=value up at '='.
  if [ "$cur" = = ]; then cur=; elif [ "$prev" = = ]; then prev=${{COMP_WORDS[COMP_CWORD-2]}}; fi
{2}  case $command/$prev in
    */--completion) COMPREPLY=($(compgen -W "bash zsh fish" -- "$cur")); return ;;
{3}  esac
  case $command in
{4}  esac
  if [[ $cur == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$cur"))
{5}  else
    COMPREPLY=($(compgen -f -- "$cur"))
  fi
}}
complete -o filenames -F {1} {0}
)",
                     tool.name, function_name(tool), find_command, values, flags, no_flag);
}

// Text within '...' of a shell.
std::string in_single_quotes(std::string_view text) {
  std::string out;
  for (const char c : text) c == '\'' ? void(out += "'\\''") : void(out += c);
  return out;
}

// The same, within the [...] or behind the ':' of zsh's _arguments.
std::string zsh_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return in_single_quotes(out);
}

std::string zsh_option(const OptionInfo& option) {
  const Value value = value_of(option);
  const bool again =
      option.form == Form::Repeated || option.form == Form::List || option.form == Form::Prefix;
  // "-W-" takes its value in the same word.
  std::string spec = fmt::format("'{}{}{}[{}]", again ? "*" : "", flag(option),
                                 option.form == Form::Prefix ? "-" : "", zsh_text(option.help));
  if (option.form == Form::Prefix || value.any) {
    spec += fmt::format(":{}:{}", zsh_text(option.value),
                        !value.choice.empty() ? fmt::format("({})", value.choice)
                        : value.file          ? "_files"
                                              : " ");
  }
  return spec + "'";
}

std::string zsh_options(const Tool& tool, size_t command, std::string_view indent) {
  std::string out;
  for (const OptionInfo* option : options_of(tool, command)) {
    out += fmt::format("{}{} \\\n", indent, zsh_option(*option));
  }
  return out + fmt::format("{}'--help[list the options]' \\\n{}'*:file:_files'\n", indent, indent);
}

std::string zsh(const Tool& tool) {
  std::string out = fmt::format(
      "#compdef {0}\n# Completions of {0} for zsh, made by: {0} --completion zsh\n", tool.name);
  if (!has_commands(tool)) return out + "_arguments -S \\\n" + zsh_options(tool, 0, "  ");
  out += "local -a commands=(\n";
  for (const CommandInfo& command : tool.commands) {
    out += fmt::format("  '{}:{}'\n", command.name, zsh_text(command.summary));
  }
  out +=
      ")\nlocal context state line\n"
      "_arguments -C '--help[list the options]' '--version[print the version]' \\\n"
      "  '--completion[print completions]:shell:(bash zsh fish)' \\\n"
      "  '1:command:->command' '*::options:->options'\n"
      "case $state in\n"
      "  command) _describe command commands ;;\n"
      "  options)\n    case $line[1] in\n";
  for (size_t c = 0; c < tool.commands.size(); ++c) {
    out += fmt::format("      {}) _arguments \\\n{}        ;;\n", tool.commands[c].name,
                       zsh_options(tool, c, "        "));
  }
  return out + "    esac ;;\nesac\n";
}

// Text within '...' of fish.
std::string fish_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string fish_option(const Tool& tool, const OptionInfo& option) {
  std::string names;
  for (size_t c = 0; c < tool.commands.size(); ++c) {
    if (option.commands >> c & 1) names += fmt::format(" {}", tool.commands[c].name);
  }
  const std::string only =
      has_commands(tool) ? fmt::format(" -n '__fish_seen_subcommand_from{}'", names) : "";
  const Value value = value_of(option);
  const std::string takes = !value.any              ? ""
                            : !value.choice.empty() ? fmt::format(" -xa '{}'", value.choice)
                            : value.file            ? " -rF"
                                                    : " -x";
  return fmt::format("complete -c {}{} -{} {}{} -d '{}'\n", tool.name, only,
                     option.name.size() > 1 ? "l" : "s", option.name, takes,
                     fish_text(option.help));
}

std::string fish(const Tool& tool) {
  std::string out =
      fmt::format("# Completions of {0} for fish, made by: {0} --completion fish\n", tool.name);
  if (has_commands(tool)) {
    for (const CommandInfo& command : tool.commands) {
      out += fmt::format("complete -c {} -n 'not __fish_seen_subcommand_from {}' -fa {} -d '{}'\n",
                         tool.name, command_names(tool), command.name, fish_text(command.summary));
    }
  }
  out += fmt::format(
      "complete -c {0} -l help -d 'list the options'\n"
      "complete -c {0} -l version -d 'print the version'\n"
      "complete -c {0} -l completion -xa 'bash zsh fish' -d 'print completions'\n",
      tool.name);
  for (const OptionInfo& option : tool.options) out += fish_option(tool, option);
  return out;
}

struct Shell {
  std::string_view name;
  std::string (*completion)(const Tool&);
};
constexpr Shell kShells[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};

}  // namespace

Result<std::string> completion(const Tool& tool, std::string_view shell) {
  std::vector<std::string> names;
  for (const Shell& row : kShells) {
    if (row.name == shell) return row.completion(tool);
    names.emplace_back(row.name);
  }
  return Error{fmt::format("--completion takes the name of a shell ({}), not '{}'",
                           join(names, ", "), printable(std::string(shell)))};
}

}  // namespace ktx::tools
