#include "tools/ktx-compile/given_files.h"

#include <algorithm>
#include <filesystem>

#include "lib/input/file_kind.h"
#include "lib/support/mapped_file.h"
#include "lib/support/near_files.h"
#include "lib/support/strings.h"
#include "tools/hub_model.h"
#include "tools/ktx-compile/compile_commands.h"

namespace ktx::tools {
namespace {

namespace fs = std::filesystem;

bool is_yaml(std::string_view path) {
  return path.ends_with(".yaml") || path.ends_with(".yml");
}

// How the model is given on a line of rules: as it was, or a placeholder.
std::string model_words(const Options& options) {
  if (!options.model.empty()) return shell_word(options.model);
  return options.hf_config.empty() ? "model.gguf" : "--hf-config " + shell_word(options.hf_config);
}

// A folder instead of a file: which of its files was meant.
std::string about_folder(const std::string& path, const Options& options) {
  const std::vector<std::string> models = files_of_folder(path, ".gguf");
  const std::string shown = printable(path);
  if (!models.empty()) {
    const std::string model = shell_word(models.front());
    return fmt::format("{} is a folder; name the GGUF in it{}: {}; try: ktx-compile {}{}", shown,
                       models.size() > 1 ? " (of shards the first)" : "", models.front(),
                       options.check ? "--check " + model : model + " -o ",
                       options.check ? "" : plan_for(models.front()));
  }
  std::vector<std::string> rules = files_of_folder(path, ".yaml");
  const std::vector<std::string> yml = files_of_folder(path, ".yml");
  rules.insert(rules.end(), yml.begin(), yml.end());
  if (!rules.empty()) {
    const size_t most = std::min<size_t>(rules.size(), 3);
    std::vector<std::string> words;
    for (size_t i = 0; i < most; ++i) words.push_back(shell_word(rules[i]));
    const std::string files = join(words, " ") + (rules.size() > most ? " ..." : "");
    return fmt::format("{} is a folder of {} rule file{}; name those to use: ktx-compile {}{} {}{}",
                       shown, rules.size(), rules.size() == 1 ? "" : "s",
                       options.check ? "--check " : "", model_words(options), files,
                       options.check ? "" : " -o " + plan_for(options.model));
  }
  const std::string convert = fmt::format(
      "make a GGUF of it with llama.cpp's convert_hf_to_gguf.py, then: ktx-compile model.gguf "
      "--hf-config {} -o model.ktxplan",
      shell_word(path));
  return files_of_folder(path, ".safetensors").empty()
             ? fmt::format("{} is a folder without a GGUF; {}", shown, convert)
             : fmt::format("{} is a folder of safetensors, and weights are read from a GGUF; {}",
                           shown, convert);
}

// A word that is no file: the plan without -o, or a command that is an option here.
std::string about_missing(const std::string& path, const Options& options) {
  if (path.ends_with(".ktxplan") && options.output.empty()) {
    return fmt::format(
        "{0} is not there; the plan to write is named with -o: ktx-compile {1} -o "
        "{0}",
        shell_word(path), model_words(options));
  }
  for (const OptionInfo& option : ktx_compile_tool().options) {
    if (option.name == path && path.size() > 1) {
      return fmt::format("no file '{}'; did you mean '{}'?", path, shown_option(path));
    }
  }
  return path == "compile" ? "no file 'compile'; leave the word out, ktx-compile has no commands"
                           : "";
}

}  // namespace

std::string plan_for(const std::string& model) {
  const auto of_hub = parse_hub_model(model);
  if (of_hub) return shell_word(plan_name_of(*of_hub) + ".ktxplan");
  fs::path path(model.empty() ? "model" : model);
  std::string stem = path.stem().string();
  const size_t shard = stem.rfind("-00001-of-");
  if (shard != stem.npos && shard > 0) stem.resize(shard);
  return shell_word((path.parent_path() / (stem + ".ktxplan")).string());
}

void sort_files(std::span<const std::string> files, Options& options, Mistakes& mistakes) {
  std::vector<std::string> folders, unread;
  for (const std::string& path : files) {
    std::error_code error;
    if (fs::is_directory(path, error)) {
      folders.push_back(path);
      continue;
    }
    if (is_hub_model(path) && options.model.empty()) {
      options.model = path;
      continue;
    }
    Result<MappedFile> file = MappedFile::open(path);
    if (!file) {
      unread.push_back(path);
      continue;
    }
    const input::FileKind kind = input::file_kind(file->bytes());
    // Rule files may be empty, JSON (which is YAML) or missing: their reader says so.
    if (kind == input::FileKind::Text || (is_yaml(path) && kind != input::FileKind::Gguf)) {
      options.rules.push_back(path);
    } else if (kind == input::FileKind::KtxPlan && !options.model.empty()) {
      mistakes.push_back(
          fmt::format("{} is a plan; the plan to write is named with -o: ktx-compile {} -o {}",
                      printable(path), shell_word(options.model), shell_word(path)));
    } else if (kind == input::FileKind::Json) {
      mistakes.push_back(fmt::format("{} is a JSON file; give a config as --hf-config {}",
                                     printable(path), shell_word(path)));
    } else if (kind == input::FileKind::SafeTensors) {
      mistakes.push_back(
          fmt::format("{} is a safetensors file, and weights are read from a GGUF; make one "
                      "with llama.cpp's convert_hf_to_gguf.py",
                      printable(path)));
    } else if (options.model.empty()) {
      options.model = path;  // whatever it is, the reader says what is wrong with it
      options.graph_text = kind == input::FileKind::GraphText;
      options.model_is_plan = kind == input::FileKind::KtxPlan;
    } else {
      mistakes.push_back(fmt::format("two models given, '{}' and '{}' ({}); name one",
                                     printable(options.model), printable(path),
                                     input::describe(kind)));
    }
  }
  for (const std::string& path : folders) mistakes.push_back(about_folder(path, options));
  // A file that cannot be opened is not wrong usage: its reader reports it.
  for (const std::string& path : unread) {
    std::error_code error;
    const std::string about = fs::exists(path, error) ? "" : about_missing(path, options);
    if (!about.empty()) {
      mistakes.push_back(about);
    } else if (is_yaml(path) || !options.model.empty()) {
      options.rules.push_back(path);
    } else {
      options.model = path;
    }
  }
}

}  // namespace ktx::tools
