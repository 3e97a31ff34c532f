// The command line of ktx-run: the table of its options, then checks of their combination.
#include "tools/ktx-run/options.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "lib/support/strings.h"
#include "lib/text/chat_template/template_var.h"
#include "tools/about.h"
#include "tools/finish.h"
#include "tools/ktx-run/plan_words.h"
#include "tools/ktx-run/run_commands.h"
#include "tools/ktx-run/serve_settings.h"
#include "tools/ktx-run/served_pulls.h"

namespace ktx::tools {
namespace {

// A pipe or a file that is not empty, but no terminal and not /dev/null.
bool text_on_standard_input() {
  struct stat info = {};
  if (fstat(STDIN_FILENO, &info) != 0) return false;
  return S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode) ||
         (S_ISREG(info.st_mode) && info.st_size > 0);
}

void check_generate(Options& options, const ParsedLine& line, Mistakes& mistakes) {
  const auto given = [&](std::string_view name) {
    return line.find(ktx_run_tool(), name) != nullptr;
  };
  const int sources =
      options.prompt.has_value() + options.prompt_file.has_value() + options.prompt_ids.has_value();
  if (sources == 0 && text_on_standard_input()) {
    options.prompt_file = "-";
  } else if (sources == 0) {
    mistakes.emplace_back(
        "give one of --prompt, --prompt-file and --prompt-ids, or a text by a pipe");
  } else if (sources > 1) {
    mistakes.emplace_back("give one of --prompt, --prompt-file and --prompt-ids");
  }
  if (options.chat && options.prompt_ids) {
    mistakes.emplace_back("--chat needs a text, not --prompt-ids");
  }
  const bool templated = given("system") || given("template-var") || given("chat-template") ||
                         given("chat-template-file") || given("allow-control-tokens");
  if (!options.chat && templated) {
    mistakes.emplace_back(
        "--system, --template-var, --chat-template and --allow-control-tokens are for the chat "
        "template: add --chat");
  }
  if (given("logprobs") && !options.json) mistakes.emplace_back("--logprobs goes with --json");
}

// "*", "null" (pages of files), "localhost", or what a browser sends as a page's origin: no path,
// no end "/".
bool is_origin(std::string_view text) {
  const size_t scheme = text.find("://");
  return text == "*" || text == "null" || text == "localhost" ||
         (scheme != text.npos && scheme > 0 && scheme + 3 < text.size() &&
          text.find_first_of("/ ,", scheme + 3) == text.npos);
}

// What names one plan, or is about one.
void check_several(const Options& options, Mistakes& mistakes) {
  const ServeFlags& serve = options.serve;
  std::error_code error;
  const bool several =
      serve.sources.size() > 1 ||
      (serve.sources.size() == 1 && std::filesystem::is_directory(serve.sources[0], error));
  const auto refuse = [&](const char* option, bool given, const char* why) {
    if (given) mistakes.push_back(fmt::format("{} {}", option, why));
  };
  if (several) {
    constexpr const char* kOne = "is for one plan, and several are served: leave it out";
    refuse("--name", !serve.name.empty(), kOne);
    refuse("--alias", !serve.aliases.empty(), kOne);
    refuse("--tags", !serve.tags.empty(), kOne);
    refuse("--profile", !serve.profile.empty(), kOne);
    refuse("--draft", !options.draft.plan.empty(), kOne);
    refuse("--record-experts", !options.engine.record_experts.empty(), kOne);
  }
  if (serve.sleep_idle_seconds > 0) {
    constexpr const char* kStays =
        "needs the model all the time: leave it or --sleep-idle-seconds out";
    refuse("--profile", !several && !serve.profile.empty(), kStays);
    refuse("--record-experts", !several && !options.engine.record_experts.empty(), kStays);
  }
}

void check_serve(const ServeFlags& serve, Mistakes& mistakes) {
  for (const std::string& origin : serve.cors) {
    if (!is_origin(origin)) {
      mistakes.push_back(
          fmt::format("--cors takes https://site, without a path, localhost or *, "
                      "not '{}'",
                      printable(origin)));
    }
  }
  for (const std::string& key : serve.api_keys) {
    if (key.empty()) {
      mistakes.emplace_back(
          "--api-key (KTX_SERVE_API_KEY) is empty, and everyone could call the server");
    }
  }
  if (serve.profile.empty() && (serve.profile_every > 1 || serve.profile_size_bytes > 0)) {
    mistakes.emplace_back("--profile-every and --profile-size go with --profile FILE");
  }
  if (serve.weights_meanwhile && serve.require_signature.empty()) {
    mistakes.emplace_back("--signed-weights goes with --require-signature KEY");
  }
  if (!serve.allow_pull) {
    for (std::string& mistake : folders_without_plans(serve.sources)) {
      mistakes.push_back(std::move(mistake));
    }
  }
  if (std::string mistake = pulls_mistake(serve); !mistake.empty()) {
    mistakes.push_back(std::move(mistake));
  }
  if (serve.tls_cert.empty() != serve.tls_key.empty()) {
    mistakes.emplace_back("--tls-cert and --tls-key belong together");
  }
}

// The text comes from a file, from a pipe, or with the log-probabilities of another model.
void check_score(Options& options, Mistakes& mistakes) {
  ScoreFlags& score = options.score;
  if (!score.base.empty()) {
    if (!score.file.empty()) mistakes.emplace_back("--base has the text: leave -f out");
    if (options.engine.ctx > 0) mistakes.emplace_back("--base has the contexts: leave --ctx out");
  } else if (score.file.empty() && text_on_standard_input()) {
    score.file = "-";
  } else if (score.file.empty()) {
    mistakes.emplace_back("give the text with -f FILE, or by a pipe");
  }
}

void read_template_vars(Options& options, Mistakes& mistakes) {
  auto template_vars = text::parse_template_vars(options.template_var_texts);
  if (template_vars) {
    options.template_vars = template_vars.take();
  } else {
    mistakes.push_back("--template-var: " + template_vars.error().message);
  }
}

Options read_options(ParsedLine& line, Mistakes& mistakes) {
  Options options;
  options.command = static_cast<Command>(line.command);
  if (options.command == Command::Serve) {
    if (const Status added = add_serve_settings(line); !added) {
      mistakes.push_back(added.error().message);
    }
  }
  for (const Given& given : line.given) set_option(options, given, mistakes);
  options.plan = line.words.empty() ? "" : line.words[0];
  if (options.command == Command::Generate) check_generate(options, line, mistakes);
  if (options.command == Command::Plans && !line.words.empty()) {
    options.plan.clear();
    options.plans.remove.assign(line.words.begin() + 1, line.words.end());
  }
  if (options.command == Command::Pull) {
    options.pull.model = std::exchange(options.plan, "");
  }
  if (options.command == Command::Compare) options.score.other_plan = line.words[1];
  if (options.command == Command::Perplexity || options.command == Command::Score ||
      options.command == Command::Compare) {
    check_score(options, mistakes);
  }
  if (options.command == Command::Serve) {
    options.serve.sources = line.words;
    check_serve(options.serve, mistakes);
    check_several(options, mistakes);
  }
  if (!options.diff.empty() + options.provenance + options.source_sha256 + options.root +
          !options.emit.empty() >
      1) {
    mistakes.emplace_back("give one of --diff, --emit, --provenance, --source-sha256 and --root");
  }
  if (options.chat_template.name_or_text && options.chat_template.file) {
    mistakes.emplace_back("give one of --chat-template and --chat-template-file");
  }
  if (!options.draft.plan.empty() && options.draft.lookup > 0) {
    mistakes.emplace_back("give one of --draft and --lookup");
  }
  if (!options.draft.plan.empty() && options.command == Command::Doctor && options.plan.empty()) {
    mistakes.emplace_back("--draft goes with the plan of the model");
  }
  if (!options.trace.empty() && options.bench_threads.size() > 1) {
    mistakes.emplace_back("--trace shows runs of one number of threads: give one with -t");
  }
  read_template_vars(options, mistakes);
  return options;
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv, int& status) {
  const std::vector<std::string> args(argv + 1, argv + std::max(argc, 1));
  ParsedLine line = parse_line(ktx_run_tool(), args);
  status = 0;
  Mistakes mistakes = line.mistakes;
  if (print_about(ktx_run_tool(), line, wants_help(line), mistakes)) return std::nullopt;
  std::optional<Options> options;
  if (mistakes.empty()) mistakes = wrong_words(line, args);
  if (mistakes.empty()) options = read_options(line, mistakes);
  if (mistakes.empty()) return options;
  for (const std::string& message : mistakes) say_error("ktx-run", message);
  status = 2;
  return std::nullopt;
}

}  // namespace ktx::tools
