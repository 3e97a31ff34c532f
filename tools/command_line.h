// Parses a command line by the table of a tool's options, and reports what is wrong with it.
//
//   ktx-run --temp 0.7 chat m.ktxplan       command chat, --temp = 0.7, words m.ktxplan
//   ktx-run chat m.ktxplan --n-predict 20   "no option '--n-predict' here: write -n N"
//
// --ctx 4096, --ctx=4096 and -ctx 4096 are equivalent. Values are not interpreted here; see
// option_readers.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ktx::tools {

enum class Form {
  Switch,    // stands alone, or as --name=on or --name=off
  Value,     // --name VALUE, once
  Repeated,  // may be given several times
  List,      // the same, and a value is several parts with commas between them
  Prefix,    // -Wname, several times
};

struct OptionInfo {
  std::string_view name;   // "ctx"
  std::string_view value;  // what help calls its value: "N"; "" of a switch
  uint32_t commands;       // a bit for each command that has it
  std::string_view group;  // its heading in help
  Form form;
  std::string_view help;
};

struct CommandInfo {
  std::string_view name;     // "" of a tool without commands
  std::string_view words;    // "PLAN"
  std::string_view summary;  // one line
  std::string_view examples;
  std::string_view notes;  // behind the options; may be ""
};

struct Tool {
  std::string_view name;                  // "ktx-run"
  std::string_view foreign;               // its rows of foreign_flags.def
  std::span<const CommandInfo> commands;  // one, without a name, when there are none
  std::span<const OptionInfo> options;
  std::string_view summary;
  std::string_view examples;
  std::string_view notes;
};

// One option as it was given, in a place that messages can name.
struct Given {
  size_t option = 0;  // of the table
  std::string shown;  // "--ctx", "KTX_CTX", "serve.conf:3: ctx"
  std::vector<std::string> values;
};

struct ParsedLine {
  int command = -1;
  bool command_first = true;  // no word stands before it
  bool help = false, version = false, man_page = false;
  std::string completion;  // the shell of --completion
  std::vector<Given> given;
  std::vector<std::string> words;  // neither an option, its value nor the command
  std::vector<std::string> mistakes;

  const Given* find(const Tool& tool, std::string_view option) const;
};

// `args`: without the program's name.
ParsedLine parse_line(const Tool& tool, std::span<const std::string> args);

// "--ctx", "-n".
std::string shown_option(std::string_view name);

// A value given elsewhere than on the command line, cut up as one on it would be.
Given given_as(const Tool& tool, size_t option, std::string shown, std::string_view value);

}  // namespace ktx::tools
