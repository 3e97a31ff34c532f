#include "tools/ktx-run/plan_recipe.h"

#include <fmt/format.h>

#include <filesystem>

#include "lib/plan_cache/model_files.h"
#include "lib/support/hash.h"
#include "lib/support/mapped_file.h"
#include "lib/support/strings.h"
#include "lib/target/target_text.h"
#include "tools/child_program.h"
#include "tools/given_adapter.h"
#include "tools/option_readers.h"

namespace ktx::tools {
namespace {

namespace fs = std::filesystem;

// Files that the compiler looks for in the folder of the model (lib/input/model_source.h).
constexpr const char* kBeside[] = {"config.json", "generation_config.json", "tokenizer_config.json",
                                   "chat_template.json", "chat_template.jinja"};
constexpr uint64_t kReadWhole = 16 << 20;

std::string hash_of(std::string_view text) {
  return to_hex(hash_bytes(std::as_bytes(std::span(text))));
}

std::string content_of(const std::string& path) {
  std::error_code error;
  if (fs::file_size(path, error) > kReadWhole || error) {
    const auto key = plan_cache::content_key(plan_cache::files_of_model(path));
    return key ? *key : "";
  }
  const auto text = read_text_file(path, kReadWhole);
  return text ? hash_of(*text) : "";
}

// "" where the word is no file.
std::string content_of_folder(const std::string& folder);
std::string content_of_word(const std::string& word) {
  std::error_code error;
  if (fs::is_regular_file(word, error)) return content_of(word);
  if (fs::is_directory(word, error)) return content_of_folder(word);
  return "";
}

std::string content_of_folder(const std::string& folder) {
  std::string text;
  for (const char* name : kBeside) {
    std::error_code error;
    const std::string path = (fs::path(folder) / name).string();
    if (fs::is_regular_file(path, error)) text += fmt::format(" {}={}", name, content_of(path));
  }
  return text;
}

class Recipe {
 public:
  // An argument whose value may name a file or folder.
  void add(const std::string& option, const std::string& value) {
    recipe_.arguments.push_back(option);
    recipe_.arguments.push_back(value);
    remember(option, value);
  }
  void add_rules(const std::string& file) {
    recipe_.arguments.push_back(file);
    remember("--rules", file);
  }
  void add_words(const std::vector<std::string>& words) {
    for (const std::string& word : words) {
      recipe_.arguments.push_back(word);
      const size_t equals = word.find('=');
      const std::string value = equals == word.npos ? word : word.substr(equals + 1);
      std::string content = content_of_word(value);
      if (content.empty()) content = content_of_word(parse_adapter(value).path);  // FILE:SCALE
      recipe_.text += fmt::format("{} {}\n", word, content);
      recipe_.note += fmt::format("{}{}", recipe_.note.empty() ? "" : " ", shell_word(word));
    }
  }
  void add_fact(const std::string& text) { recipe_.text += text + "\n"; }
  void add_silently(const std::string& option, const std::string& value) {
    recipe_.arguments.push_back(option);
    recipe_.arguments.push_back(value);
  }
  PlanRecipe take() { return std::move(recipe_); }

 private:
  // Where a file is does not matter, what is in it does.
  void remember(const std::string& option, const std::string& value) {
    const std::string content = content_of_word(value);
    recipe_.text += fmt::format("{} {}\n", option, content.empty() ? value : content);
    recipe_.note +=
        fmt::format("{}{} {}", recipe_.note.empty() ? "" : " ", option, shell_word(value));
  }
  PlanRecipe recipe_;
};

// With it the cache could not name the plan, or there would be none.
Status check_words(const std::vector<std::string>& words) {
  constexpr std::string_view kNot[] = {"-o",
                                       "--o",
                                       "--check",
                                       "--estimate",
                                       "--emit",
                                       "--help",
                                       "--quant",
                                       "--tokenize",
                                       "--coverage",
                                       "--consume",
                                       "--consume-if-possible"};
  for (const std::string& word : words) {
    const std::string_view name = std::string_view(word).substr(0, word.find('='));
    for (const std::string_view no : kNot) {
      if (name != no) continue;
      return Error{fmt::format(
          "--compile has {}, which does not write this plan; leave it out, or run ktx-compile yourself",
          no)};
    }
  }
  return {};
}

// What the placement counts with, where there is a choice: with GPUs.
void add_shape(const Options& options, Recipe& recipe) {
  const EngineFlags& engine = options.engine;
  const bool text_contexts = options.command == Command::Perplexity ||
                             options.command == Command::Compare;  // another --ctx
  if (engine.ctx != 0 && !text_contexts) {
    recipe.add("--ctx", engine.ctx == kLargestCtx ? "max" : fmt::format("{}", engine.ctx));
  }
  if (engine.max_batch > 0) recipe.add("--max-batch", fmt::format("{}", engine.max_batch));
  if (engine.kv_budget_bytes > 0) {
    recipe.add("--kv-budget", fmt::format("{}", engine.kv_budget_bytes));
  }
}

}  // namespace

bool keeps_model(const Options& options) {
  return options.compile.rules.empty() && options.compile.more.empty();
}

Result<PlanRecipe> plan_recipe(const Options& options, const std::string& model, bool drafts) {
  const CompileFlags& flags = options.compile;
  Recipe recipe;
  for (const std::string& file : flags.rules) recipe.add_rules(file);
  if (!flags.target.empty()) recipe.add("--target", flags.target);
  if (flags.vram_bytes > 0) recipe.add("--vram", fmt::format("{}", flags.vram_bytes));
  if (drafts) recipe.add("--draft", options.draft.plan);
  bool chooses = !flags.target.empty();
  if (flags.target.empty()) {
    target::Target machine = target::detect_host();
    machine.gpus = target::detect_gpus();
    chooses = !machine.gpus.empty();
    if (chooses) recipe.add_fact("machine " + hash_of(target::target_text(machine)));
  }
  if (chooses) add_shape(options, recipe);
  const auto words = words_of(flags.more);
  if (!words) return Error{"--compile: a quote is left open"};
  KTX_TRY(check_words(*words));
  recipe.add_words(*words);
  if (options.engine.threads > 0)
    recipe.add_silently("-t", fmt::format("{}", options.engine.threads));
  recipe.add_fact("beside" + content_of_folder(fs::path(model).parent_path().string()));
  PlanRecipe done = recipe.take();
  done.whole = keeps_model(options) && !drafts;
  return done;
}

}  // namespace ktx::tools
