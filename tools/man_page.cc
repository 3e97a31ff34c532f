#include "tools/man_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "lib/support/strings.h"

namespace ktx::tools {
namespace {

// Text of a page: '-' as it is typed, and no line that begins with a request.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
      out += c;
    }
  }
  return out;
}

// Lines as they stand.
std::string block(std::string_view text) {
  return fmt::format(".nf\n{}.fi\n", roff(text));
}

std::string option_item(const OptionInfo& option) {
  const std::string name =
      option.form == Form::Prefix ? fmt::format("-{}", option.name) : shown_option(option.name);
  const std::string value =
      option.value.empty()
          ? ""
          : fmt::format("{}\\fI{}\\fR", option.form == Form::Prefix ? "" : " ", roff(option.value));
  return fmt::format(".TP\n\\fB{}\\fR{}\n{}\n", roff(name), value, roff(option.help));
}

// The options of a command, a subsection a group; `.SH` of a tool without commands.
std::string options_text(const Tool& tool, size_t command) {
  std::vector<std::string_view> groups;
  for (const OptionInfo& option : tool.options) {
    const bool known = std::ranges::find(groups, option.group) != groups.end();
    if ((option.commands >> command & 1) != 0 && !known) groups.push_back(option.group);
  }
  std::string out;
  for (const std::string_view group : groups) {
    out += fmt::format(".SS {}\n", roff(group));
    for (const OptionInfo& option : tool.options) {
      if (option.group == group && (option.commands >> command & 1) != 0) {
        out += option_item(option);
      }
    }
  }
  return out;
}

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return out;
}

}  // namespace

std::string man_page(const Tool& tool) {
  const bool one = tool.commands.size() == 1;
  std::string out = fmt::format(".TH {} 1 \"\" \"ktx {}\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n",
                                upper(tool.name), KTX_VERSION, roff(tool.name), roff(tool.summary));
  for (const CommandInfo& command : tool.commands) {
    const std::string name = one ? "" : fmt::format(" {}", command.name);
    out += fmt::format("\\fB{}{}\\fR {} [\\fIOPTIONS\\fR]\n.br\n", roff(tool.name), name,
                       roff(command.words));
  }
  out += ".SH EXAMPLES\n" + block(tool.examples);
  for (size_t c = 0; c < tool.commands.size(); ++c) {
    const CommandInfo& command = tool.commands[c];
    if (one) {
      out += ".SH OPTIONS\n";
    } else {
      out += fmt::format(".SH {} {}\n{}.\n.PP\n{}", upper(tool.name), upper(command.name),
                         roff(command.summary), block(command.examples));
      if (!command.notes.empty()) out += fmt::format(".PP\n{}", block(command.notes));
    }
    out += options_text(tool, c);
  }
  return out + fmt::format(".SH NOTES\n{}", block(tool.notes));
}

}  // namespace ktx::tools
