#include "tools/ktx-run/plan_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "lib/plan_cache/model_files.h"
#include "lib/support/near_files.h"
#include "lib/support/strings.h"
#include "tools/hub_model.h"
#include "tools/ktx-run/run_commands.h"

namespace ktx::tools {
namespace {

namespace fs = std::filesystem;

// The plan or model to name where none was given: the only one here, or a placeholder.
std::string some_plan() {
  const std::vector<std::string> plans = files_of_folder(".", ".ktxplan");
  if (plans.size() == 1) return shell_word(fs::path(plans[0]).filename().string());
  const std::vector<std::string> models = files_of_folder(".", ".gguf");
  return models.size() == 1 ? shell_word(fs::path(models[0]).filename().string()) : "model.gguf";
}

// The line with a command in front, and without what stands in its way.
std::string line_with(std::string_view command, std::span<const std::string> args,
                      std::string_view without = "") {
  std::string out = fmt::format("ktx-run {}", command);
  for (const std::string& arg : args) {
    if (arg != without) out += " " + shell_word(arg);
  }
  return out;
}

std::string about_folder(const std::string& folder, std::string_view command) {
  const std::vector<std::string> plans = files_of_folder(folder, ".ktxplan");
  if (!plans.empty()) {
    return fmt::format("{} is a folder; name the plan in it: ktx-run {} {}", printable(folder),
                       command, shell_word(plans[0]));
  }
  const std::vector<std::string> models = files_of_folder(folder, ".gguf");
  if (!models.empty()) {
    return fmt::format("{} is a folder; name the model in it{}: ktx-run {} {}", printable(folder),
                       models.size() > 1 ? " (of shards the first)" : "", command,
                       shell_word(models[0]));
  }
  const bool weights = !files_of_folder(folder, ".safetensors").empty();
  return fmt::format(
      "{} is a folder {}; make a GGUF of it with llama.cpp's convert_hf_to_gguf.py, or take one "
      "that others have made, then: ktx-run {} model.gguf",
      printable(folder),
      weights ? "of safetensors, and weights are read from a GGUF" : "without a plan or a GGUF",
      command);
}

// In folders of the folder, as `serve` looks for them.
bool has_plan_below(const std::string& folder, int levels = 2) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (!entry.is_directory(error)) continue;
    if (!files_of_folder(entry.path(), ".ktxplan").empty()) return true;
    if (levels > 1 && has_plan_below(entry.path(), levels - 1)) return true;
  }
  return false;
}

std::string foreign_command_advice(std::string_view word) {
  struct Row {
    std::string_view word, advice;
  };
  static constexpr Row kRows[] = {
#define KTX_FOREIGN_COMMAND(word, advice) {word, advice},
#include "tools/ktx-run/foreign_commands.def"
  };
  for (const Row& row : kRows) {
    if (row.word == word) return std::string(row.advice);
  }
  return "";
}

// A word that is neither a command nor a file.
std::string about_unknown(const std::string& word) {
  std::vector<std::string> names;
  for (const CommandInfo& command : ktx_run_tool().commands) names.emplace_back(command.name);
  const std::string advice = foreign_command_advice(word), near = did_you_mean(word, names);
  if (!advice.empty()) return fmt::format("no command '{}': {}", printable(word), advice);
  const bool is_path = word.find('/') != word.npos || word.find('.') != word.npos;
  if (near.empty() && is_path) {
    const std::string file = nearest_file(word);
    return fmt::format("{}: no such file, and no command is given; try: ktx-run chat {}",
                       printable(word), file.empty() ? some_plan() : shell_word(file));
  }
  return fmt::format("no command '{}'{}\n  commands: {}", printable(word), near,
                     fmt::join(names, ", "));
}

std::string without_command(const ParsedLine& line, std::span<const std::string> args) {
  if (line.words.empty()) {
    return fmt::format("no command given; try: ktx-run chat {}, or ktx-run --help", some_plan());
  }
  const std::string& word = line.words[0];
  if (is_hub_model(word)) return "no command given; try: " + line_with("chat", args);
  std::error_code error;
  if (fs::is_directory(word, error)) return about_folder(word, "chat");
  if (!fs::exists(word, error)) return about_unknown(word);
  return "no command given; try: " + line_with("chat", args);
}

// What `serve` is to offer; folders_without_plans() says more about folders.
Mistakes wrong_sources(std::span<const std::string> words) {
  Mistakes mistakes;
  std::map<std::string, std::string> names;  // of plans, each with its path
  for (const std::string& word : words) {
    std::error_code error;
    if (fs::is_directory(word, error)) continue;
    const auto [at, added] = names.emplace(plan_cache::name_of_model(word), word);
    if (!added) {
      mistakes.push_back(fmt::format("{} and {} would have the same name; rename one of them",
                                     printable(at->second), printable(word)));
    }
    if (words.size() > 1 && !is_hub_model(word) && !fs::exists(word, error)) {
      const std::string near = nearest_file(word);
      mistakes.push_back(fmt::format("{}: no such file{}", printable(word),
                                     near.empty() ? "" : "; did you mean " + shell_word(near)));
    }
  }
  return mistakes;
}

// "rm NAME...", or nothing.
Mistakes wrong_plans(const ParsedLine& line) {
  const std::span<const std::string> words = line.words;
  const bool removes = !words.empty() && words[0] == "rm";
  if (!words.empty() && !removes) {
    return {fmt::format("plans lists by itself, and takes rm NAME alone; leave out '{}'",
                        printable(words[0]))};
  }
  if (removes && words.size() == 1) {
    return {"rm takes the names of plans, as `ktx-run plans` lists them"};
  }
  if (removes && line.find(ktx_run_tool(), "keep-below") != nullptr) {
    return {"give one of rm and --keep-below"};
  }
  return {};
}

Mistakes wrong_pair(std::span<const std::string> words) {
  if (words.size() != 2) {
    return {
        fmt::format("compare takes two plans, not {}; the first is what the second is compared "
                    "with, and may be the same file",
                    words.size())};
  }
  for (const std::string& word : words) {
    std::error_code error;
    if (fs::is_directory(word, error)) return {about_folder(word, "compare")};
  }
  return {};
}

}  // namespace

bool wants_help(const ParsedLine& line) {
  std::error_code error;
  return !line.words.empty() && line.words[0] == "help" && !fs::exists("help", error);
}

Mistakes wrong_words(const ParsedLine& line, std::span<const std::string> args) {
  if (line.command < 0) return {without_command(line, args)};
  const auto command = static_cast<Command>(line.command);
  const std::string_view name = command_name(command);
  if (!line.command_first) {
    return {fmt::format("the command comes first: {}", line_with(name, args, name))};
  }
  if (command == Command::Plans) return wrong_plans(line);
  if (command == Command::Pull && (line.words.size() != 1 || !is_hub_model(line.words[0]))) {
    return {
        "pull takes one model of a hub: hf:OWNER/NAME or hf:OWNER/NAME:QUANT, such as "
        "hf:ggml-org/gemma-3-1b-it-GGUF:Q4_K_M"};
  }
  if (command == Command::Probe && !line.words.empty()) {
    return {fmt::format("probe measures the machine, without a plan: leave out '{}'",
                        printable(line.words[0]))};
  }
  if (line.words.empty() && (command == Command::Doctor || command == Command::Probe)) return {};
  const auto is_diff = [](std::string_view arg) { return arg == "--diff"; };
  if (line.words.empty() && command == Command::Inspect && std::ranges::any_of(args, is_diff)) {
    return {
        "--diff has the first of two plans; name the second, too: ktx-run inspect --diff "
        "old.ktxplan new.ktxplan"};
  }
  if (line.words.empty()) {
    return {fmt::format("no model given; try: ktx-run {} {}", name, some_plan())};
  }
  if (command == Command::Serve) return wrong_sources(line.words);
  if (command == Command::Compare) return wrong_pair(line.words);
  if (line.words.size() > 1) {
    const char* prompt = command == Command::Generate ? "; a prompt is given as --prompt TEXT" : "";
    return {fmt::format("only one model is used, but '{}' follows it{}", printable(line.words[1]),
                        prompt)};
  }
  std::error_code error;
  if (fs::is_directory(line.words[0], error)) return {about_folder(line.words[0], name)};
  return {};
}

Mistakes folders_without_plans(std::span<const std::string> sources) {
  Mistakes mistakes;
  for (const std::string& word : sources) {
    std::error_code error;
    if (!fs::is_directory(word, error)) continue;
    if (files_of_folder(word, ".ktxplan").empty() && !has_plan_below(word)) {
      mistakes.push_back(about_folder(word, "serve"));
    }
  }
  return mistakes;
}

}  // namespace ktx::tools
