// ktx-compile: GGUF + HF config + YAML rules -> one plan.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "lib/support/sandbox.h"
#include "tools/finish.h"
#include "tools/given_adapter.h"
#include "tools/hub_model.h"
#include "tools/ktx-compile/check.h"
#include "tools/ktx-compile/graph_text.h"
#include "tools/ktx-compile/options.h"
#include "tools/ktx-compile/pipeline.h"
#include "tools/ktx-compile/plan_input.h"
#include "tools/ktx-compile/sarif.h"
#include "tools/ktx-compile/text_commands.h"

namespace {

int run(const ktx::tools::Options& options);

// The folders of all files that the command line names; programs bring those of machines' profiles.
ktx::Status enter_sandbox(const ktx::tools::Options& options) {
  ktx::SandboxPaths paths;
  for (const std::string& file : {options.model, options.hf_config, options.tokenizer,
                                  options.chat_template_file.value_or(""), options.draft,
                                  options.mmproj, options.reuse, options.target}) {
    ktx::add_folders_of(file, paths.read);
  }
  for (const auto* files :
       {&options.rules, &options.expert_profiles, &options.draft_rules, &options.mmproj_rules}) {
    for (const std::string& file : *files) {
      ktx::add_folders_of(file, options.fix ? paths.write : paths.read);
    }
  }
  for (const std::string& given : options.merge) {
    ktx::add_folders_of(ktx::tools::parse_adapter(given).path, paths.read);
  }
  if (!options.hf_config.empty()) paths.read.push_back(options.hf_config);  // or a folder
  std::error_code error;
  const auto program = std::filesystem::canonical("/proc/self/exe", error).parent_path();
  for (const char* folder : {"../targets", "../share/ktx"}) {
    paths.read.push_back((program / folder).string());
  }
  ktx::add_folders_of(options.output, paths.write);
  if (options.consume) ktx::add_folders_of(options.model, paths.write);
  ktx::add_folders_of(options.report, paths.write);
  paths.write.push_back(std::filesystem::temp_directory_path(error).string());
  KTX_TRY(ktx::restrict_files(paths));
  return ktx::restrict_calls();
}

// A plan stands for its GGUF.
int run_with_plan(const ktx::tools::Options& options) {
  const auto input = ktx::tools::PlanInput::rebuild(options);
  if (!input) {
    fmt::print(stderr, "ktx-compile: error: {}\n", input.error().message);
    return 1;
  }
  ktx::tools::Options with_gguf = options;
  with_gguf.model = (*input)->gguf();
  with_gguf.model_is_plan = false;
  with_gguf.merged_before = (*input)->merged();
  return run(with_gguf);
}

// Replaces hf:OWNER/NAME with the file that was pulled; for a check, with its beginning alone.
// Returns an exit status if there is no file.
std::optional<int> pull_hub_model(ktx::tools::Options& options) {
  if (!ktx::tools::is_hub_model(options.model)) return std::nullopt;
  std::vector<std::string> more;
  if (options.check) more.emplace_back("--header");
  if (options.quiet) more.emplace_back("-q");
  const auto pulled = ktx::tools::pull_model(options.model, more);
  if (!pulled) {
    fmt::print(stderr, "ktx-compile: error: {}\n", pulled.error().message);
    return 1;
  }
  if (pulled->path.empty()) return pulled->status;
  options.model = pulled->path;
  return std::nullopt;
}

int run(const ktx::tools::Options& options) {
  if (options.print_schema || !options.explain_code.empty()) {
    return ktx::tools::run_explain_code(options);
  }
  if (options.model_is_plan) return run_with_plan(options);
  if (options.check) return ktx::tools::run_check(options);
  if (options.tokenize_file) return ktx::tools::run_tokenize(options);
  if (options.render_chat_case) return ktx::tools::run_render_chat(options);
  if (options.graph_text) return ktx::tools::run_graph_text(options);
  return ktx::tools::run_compile(options);
}

// On a command line that could not be read as a whole.
bool asks_for_sarif(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    std::string_view arg = argv[i];
    arg.remove_prefix(std::min(arg.find_first_not_of('-'), arg.size()));
    if (arg == "diagnostics-format=sarif") return true;
    if (arg == "diagnostics-format" && i + 1 < argc)
      return argv[i + 1] == std::string_view("sarif");
  }
  return false;
}

// The messages are on stderr. A workflow uploads what is on stdout, and an empty file there
// would be a second error that hides the first.
int wrong_usage(int argc, char** argv) {
  if (asks_for_sarif(argc, argv)) {
    ktx::DiagSink sink;
    sink.error({}, "", "wrong usage, nothing was checked; the messages on stderr say why");
    fmt::print("{}", ktx::tools::to_sarif(sink, {.finished = false, .exit_status = 2}));
  }
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  return ktx::tools::run_tool("ktx-compile", [&] {
    int status = 0;
    auto options = ktx::tools::parse_options(argc, argv, status);
    if (options) {
      if (const auto end = pull_hub_model(*options)) return *end;
    }
    if (options && options->sandbox) {
      if (const ktx::Status entered = enter_sandbox(*options); !entered) {
        fmt::print(stderr, "ktx-compile: error: {}\n", entered.error().message);
        return 1;
      }
    }
    if (options) return run(*options);
    return status == 0 ? 0 : wrong_usage(argc, argv);
  });
}
