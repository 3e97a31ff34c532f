// What is wrong with the options of a command line, said in our own words before LLVM's
// parser sees them. Options that a tool does not have: with what to write instead for those
// of llama.cpp and KTransformers, else with the nearest of our own. Options without their
// value, and the same one twice. What stands without an option is handed back.
//
//   ktx-run chat m.ktxplan --n-predict 20
//   ktx-run: error: no option '--n-predict' here: write -n N
//
// What an option takes as its value is not looked at.
#pragma once

#include <fmt/format.h>
#include <llvm/Support/CommandLine.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/support/strings.h"

namespace ktx::tools {

struct OwnFlag {
  std::string name;
  bool takes_value = false;
  bool repeats = false;
};

// The options of a command as they are registered, and those that LLVM adds.
inline std::vector<OwnFlag> own_flags(llvm::cl::SubCommand& command) {
  std::vector<OwnFlag> flags;
  for (const char* name :
       {"help", "h", "help-hidden", "help-list", "help-list-hidden", "version"}) {
    flags.push_back({name, false, true});
  }
  for (const auto& entry : llvm::cl::getRegisteredOptions(command)) {
    const auto expected = entry.second->getValueExpectedFlag();
    flags.push_back({entry.first().str(), expected == llvm::cl::ValueRequired,
                     entry.second->getNumOccurrencesFlag() == llvm::cl::ZeroOrMore});
  }
  return flags;
}

inline std::string foreign_flag_advice(std::string_view tool, std::string_view flag) {
  struct Row {
    std::string_view tool, flag, advice;
  };
  static constexpr Row kRows[] = {
#define KTX_FOREIGN_FLAG(tool, flag, advice) {tool, flag, advice},
#include "tools/foreign_flags.def"
#undef KTX_FOREIGN_FLAG
  };
  for (const Row& row : kRows) {
    if (row.flag == flag && (row.tool == tool || row.tool == "both"))
      return std::string(row.advice);
  }
  return "";
}

struct ReadFlags {
  std::vector<std::string> mistakes;  // one message each
  std::vector<std::string> words;     // neither an option nor its value
};

// `args`: without the program's name. `tool`: "compile" or "run".
inline ReadFlags read_flags(std::string_view tool, std::span<const std::string> args,
                            std::span<const OwnFlag> own) {
  std::vector<std::string> names;
  for (const OwnFlag& flag : own) names.push_back(flag.name);
  ReadFlags read;
  std::vector<std::string>& messages = read.mistakes;
  std::vector<const OwnFlag*> seen;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string_view arg = args[i];
    if (arg == "--") {
      read.words.insert(read.words.end(), args.begin() + static_cast<ptrdiff_t>(i) + 1, args.end());
      break;
    }
    const size_t dashes = arg.starts_with("--") ? 2 : arg.starts_with("-") ? 1 : 0;
    if (dashes == 0 || arg.size() == dashes) {
      read.words.emplace_back(arg);
      continue;
    }
    const size_t equals = arg.find('=');
    const std::string_view name =
        arg.substr(dashes, equals == arg.npos ? arg.npos : equals - dashes);
    const OwnFlag* known = nullptr;
    for (const OwnFlag& flag : own) {
      if (flag.name == name) known = &flag;
    }
    const std::string shown = printable(arg.substr(0, dashes + name.size()));
    if (known) {
      if (!known->repeats && std::find(seen.begin(), seen.end(), known) != seen.end()) {
        messages.push_back(fmt::format("{} is given twice; leave one out", shown));
      }
      seen.push_back(known);
      if (known->takes_value && equals == arg.npos && ++i == args.size()) {
        messages.push_back(fmt::format("{} takes a value, and nothing follows it", shown));
      }
      continue;
    }
    const std::string advice = foreign_flag_advice(tool, name);
    const std::string nearest = nearest_name(name, names);
    if (!advice.empty()) {
      messages.push_back(fmt::format("no option '{}' here: {}", shown, advice));
    } else if (!nearest.empty() && name.size() > 1) {
      messages.push_back(fmt::format("no option '{}'; did you mean '{}{}'?", shown,
                                     nearest.size() > 1 ? "--" : "-", nearest));
    } else {
      messages.push_back(fmt::format("no option '{}'; --help lists them", shown));
    }
  }
  return read;
}

}  // namespace ktx::tools
