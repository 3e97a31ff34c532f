#include "tools/help_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/support/strings.h"

namespace ktx::tools {
namespace {

constexpr size_t kColumns = 80;
constexpr size_t kNameColumns = 27;  // longer ones have a line of their own

// `text` in lines that begin at column `indent`; the first goes on behind `first`.
std::string wrapped(std::string first, size_t indent, std::string_view text) {
  if (first.size() + 2 > indent) first += "\n" + std::string(indent, ' ');
  std::string line = first + std::string(indent - std::min(indent, first.size()), ' ');
  if (first.find('\n') != first.npos) line = first;
  std::string out;
  size_t used = indent;
  bool begins = true;
  for (const std::string_view word : split(text, ' ')) {
    if (!begins && used + 1 + word.size() > kColumns) {
      out += line + "\n";
      line = std::string(indent, ' ');
      used = indent;
      begins = true;
    }
    if (!begins) line += ' ', ++used;
    line += word;
    used += word.size();
    begins = false;
  }
  return out + line + "\n";
}

std::string option_lines(const OptionInfo& option) {
  std::string name = fmt::format("  {}", shown_option(option.name));
  if (option.form == Form::Prefix) {
    name = fmt::format("  -{}{}", option.name, option.value);
  } else if (!option.value.empty()) {
    name += fmt::format(" {}", option.value);
  }
  return wrapped(std::move(name), kNameColumns, option.help);
}

std::string groups_of(const Tool& tool, int command) {
  std::vector<const OptionInfo*> options;
  std::vector<std::string_view> groups;
  for (const OptionInfo& option : tool.options) {
    if ((option.commands >> command & 1) == 0) continue;
    options.push_back(&option);
    if (std::find(groups.begin(), groups.end(), option.group) == groups.end()) {
      groups.push_back(option.group);
    }
  }
  std::string out;
  for (const std::string_view group : groups) {
    out += fmt::format("\n{}:\n", group);
    for (const OptionInfo* option : options) {
      if (option->group == group) out += option_lines(*option);
    }
  }
  return out;
}

}  // namespace

std::string help_text(const Tool& tool, int command) {
  const bool one = tool.commands.size() == 1;
  if (one) command = 0;
  const bool whole = one || command < 0;
  const CommandInfo* about = command < 0 ? nullptr : &tool.commands[static_cast<size_t>(command)];
  std::string out = fmt::format("EXAMPLES:\n{}\nUSAGE: ", whole ? tool.examples : about->examples);
  if (about) {
    out += fmt::format("{}{}{}{}{} [OPTIONS]\n", tool.name, one ? "" : " ", about->name,
                       about->words.empty() ? "" : " ", about->words);
    out += wrapped("", 2, one ? tool.summary : about->summary) + groups_of(tool, command);
  } else {
    out += fmt::format("{} COMMAND MODEL [OPTIONS]\n", tool.name) + wrapped("", 2, tool.summary) +
           "\nCOMMANDS:\n";
    for (const CommandInfo& item : tool.commands) {
      out += wrapped(fmt::format("  {}", item.name), 14, item.summary);
    }
  }
  const std::string_view notes = whole ? tool.notes : about->notes;
  return notes.empty() ? out : fmt::format("{}\n{}", out, notes);
}

}  // namespace ktx::tools
