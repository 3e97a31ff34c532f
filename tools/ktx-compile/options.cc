// The command line of ktx-compile: the table of its options, then checks of their combination.
#include "tools/ktx-compile/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "lib/arch/usual_types.h"
#include "lib/passes/pass.h"
#include "lib/rules/checks.h"
#include "lib/support/strings.h"
#include "lib/text/chat_template/template_var.h"
#include "tools/about.h"
#include "tools/finish.h"
#include "tools/ktx-compile/compile_commands.h"
#include "tools/ktx-compile/given_files.h"

namespace ktx::tools {
namespace {

void check_names(Options& options, Mistakes& mistakes) {
  passes::PassOptions named;
  named.stop_after = options.stop_after;
  named.print_after = options.print_after;
  named.only = options.passes;
  if (const Status known = passes::check_pass_names(named); !known) {
    mistakes.push_back(known.error().message);
  }
  DiagPolicy policy;
  for (const std::string& flag : options.warnings) {
    const Status added = rules::add_warning_flag(flag, policy);
    if (!added) mistakes.push_back(added.error().message);
  }
  if (!options.prefer_text.empty()) {
    const auto prefer = program::parse_preferences(options.prefer_text);
    if (prefer.ok()) options.prefer = *prefer;
    if (!prefer.ok()) mistakes.push_back("--prefer: " + prefer.error().message);
  }
  auto template_vars = text::parse_template_vars(options.template_var_texts);
  if (template_vars) {
    options.template_vars = template_vars.take();
  } else {
    mistakes.push_back("--template-var: " + template_vars.error().message);
  }
}

// --check and its reports.
void check_check(const Options& options, Mistakes& mistakes) {
  if (!options.output.empty()) {
    mistakes.emplace_back("--check and its reports write no plan; leave -o out");
  }
  if (options.consume) mistakes.emplace_back("--consume goes with -o, and not with --check");
  if (!options.merge.empty() || options.lossy) {
    mistakes.emplace_back(
        "--merge changes no size and no place; leave it and --lossy out of checks");
  }
  if (options.model.empty() && options.hf_config.empty() && mistakes.empty()) {
    const std::string rules = options.rules.empty() ? "rules.yaml" : shell_word(options.rules[0]);
    mistakes.push_back(
        fmt::format("no model given; try: ktx-compile --check {} model.gguf, or --hf-config "
                    "config.json for a check without weights",
                    rules));
  }
  if (!options.quants.empty() && !options.model.empty()) {
    mistakes.push_back(
        fmt::format("--quant is for --hf-config alone; the types of {} are those that are in it",
                    printable(options.model)));
  }
  const std::vector<std::string> known = arch::usual_type_names();
  for (const std::string& name : options.quants) {
    if (arch::find_usual_types(name) != nullptr) continue;
    mistakes.push_back(fmt::format("--quant: no types of '{}' are known{}; names are {}",
                                   printable(name), did_you_mean(name, known), join(known, ", ")));
  }
}

std::string no_model(const Options& options) {
  if (options.rules.empty()) {
    return "no model given; try: ktx-compile model.gguf -o model.ktxplan";
  }
  const std::string rules = shell_word(options.rules.front());
  return fmt::format(
      "no model given ({} is no GGUF and was taken as a rule file); try: ktx-compile model.gguf {} "
      "-o model.ktxplan, or for a check alone: ktx-compile --check {} --hf-config config.json",
      printable(options.rules.front()), rules, rules);
}

// A graph as text goes through passes and back to text, no further.
void check_graph_text(const Options& options, Mistakes& mistakes) {
  if (!options.graph_text && !options.passes.empty() && mistakes.empty()) {
    mistakes.push_back(fmt::format(
        "--passes takes a graph as text, and {} is none; try: ktx-compile {} "
        "--stop-after={}",
        options.model.empty() ? "nothing given" : printable(options.model),
        options.model.empty() ? "model.gguf" : shell_word(options.model), options.passes.back()));
  }
  if (!options.graph_text || !mistakes.empty()) return;
  const bool writes = !options.output.empty() || options.check || options.tokenize_file ||
                      options.render_chat_case || !options.stop_after.empty() ||
                      !options.print_after.empty();
  if (writes) {
    mistakes.push_back(fmt::format(
        "{0} is a graph as text, of which only passes can be run; try: ktx-compile {0} "
        "--passes={1}",
        shell_word(options.model), options.stop_after.empty() ? "PASS" : options.stop_after));
  }
}

// A start after a kill has no whole model to read, and nothing may be left out or written twice.
void check_consume(const Options& options, Mistakes& mistakes) {
  if (!options.consume) return;
  const struct {
    bool given;
    const char *option, *why;
  } others[] = {
      {options.output.empty(), "no -o", "the model has to go somewhere"},
      {options.model_is_plan, "a plan as the model", "a plan is one copy already"},
      {options.self_tests > 0, "--selftest",
       "its answers are computed from the whole model; add them later: ktx-compile m.ktxplan "
       "--selftest N -o m.ktxplan"},
      {!options.draft.empty(), "--draft", "the drafter may need weights of the whole model"},
      {!options.mmproj.empty(), "--mmproj", "the projector is a second model"},
      {!options.merge.empty(), "--merge", "the model's own weights would be lost with it"},
      {!options.reuse.empty(), "--reuse", "what to reuse is found by the whole model"},
      {options.split_by_host, "--split-by-host", "the parts would be a second copy"},
      {options.drop_unused, "--drop-unused", "what is left out would be lost with the model"},
      {!options.emit.empty() || !options.stop_after.empty(), "--emit or --stop-after",
       "no plan is written"},
  };
  for (const auto& [given, option, why] : others) {
    if (given) mistakes.push_back(fmt::format("--consume does not go with {}: {}", option, why));
  }
}

// What is compiled, or printed of a model.
void check_compile(const Options& options, Mistakes& mistakes) {
  if (options.chat_template && options.chat_template_file) {
    mistakes.emplace_back("give one of --chat-template and --chat-template-file");
  }
  if (options.strict || !options.dialect.empty() || !options.diagnostics_format.empty()) {
    mistakes.emplace_back("--strict, --dialect and --diagnostics-format go with --check");
  }
  check_consume(options, mistakes);
  const bool text_without_model =
      (options.tokenize_file && !options.tokenizer.empty()) ||
      (options.render_chat_case && (options.chat_template || options.chat_template_file));
  if (!options.draft.empty() && options.output.empty()) {
    mistakes.emplace_back("--draft puts a drafter into the plan that -o names");
  }
  if (!options.mmproj.empty() && options.output.empty()) {
    mistakes.emplace_back("--mmproj puts a projector into the plan that -o names");
  }
  if (!options.merge.empty() && options.output.empty()) {
    mistakes.emplace_back("--merge adds an adapter to the weights of the plan that -o names");
  }
  if (options.lossy && options.merge.empty()) {
    mistakes.emplace_back("--lossy is for the weights that --merge changes, and none are given");
  }
  if (!options.mmproj_rules.empty() && options.mmproj.empty()) {
    mistakes.emplace_back(
        "--mmproj-rules is for the projector that --mmproj names, and none is named");
  }
  if (!options.draft_rules.empty() && options.draft.empty()) {
    mistakes.emplace_back("--draft-rules places the drafter that --draft names, and none is named");
  } else if (!options.draft_rules.empty() && options.draft == "mtp") {
    mistakes.emplace_back(
        "--draft-rules is for a head or a smaller model; rules of the model place the layer of "
        "--draft mtp, as the one behind its last");
  }
  if (options.model.empty() && mistakes.empty() && !text_without_model) {
    mistakes.push_back(no_model(options));
  }
  const bool report_only = options.tokenize_file || options.render_chat_case ||
                           !options.emit.empty() || !options.stop_after.empty();
  if (mistakes.empty() && options.output.empty() && !report_only && options.model_is_plan) {
    mistakes.push_back(fmt::format(
        "{0} is a plan already; run it: ktx-run chat {1}, or place it again for this machine: "
        "ktx-compile {1} -o {1}",
        printable(options.model), shell_word(options.model)));
  } else if (mistakes.empty() && options.output.empty() && !report_only) {
    mistakes.push_back(fmt::format("no -o given; try: ktx-compile {} -o {}",
                                   shell_word(options.model), plan_for(options.model)));
  }
  std::error_code error;
  if (mistakes.empty() && options.model.ends_with(".ktxplan") &&
      !std::filesystem::exists(options.model, error) && options.output.ends_with(".gguf")) {
    mistakes.push_back(fmt::format("-o names the plan to write; try: ktx-compile {} -o {}",
                                   shell_word(options.output), shell_word(options.model)));
  }
}

Options read_options(const ParsedLine& line, Mistakes& mistakes) {
  Options options;
  for (const Given& given : line.given) set_option(options, given, mistakes);
  options.consume = options.consume || options.consume_if_possible;
  options.check = options.check || options.list_unruled || options.coverage || options.estimate ||
                  options.fix || !options.explain.empty() || !options.report.empty() ||
                  !options.quants.empty();
  check_names(options, mistakes);
  sort_files(line.words, options, mistakes);
  if (!options.explain_code.empty() || options.print_schema) return options;
  check_graph_text(options, mistakes);
  if (options.graph_text) return options;
  options.check ? check_check(options, mistakes) : check_compile(options, mistakes);
  return options;
}

// `ktx-compile help`, where no file is called so.
bool wants_help(const ParsedLine& line) {
  std::error_code error;
  return line.words.size() == 1 && line.words[0] == "help" &&
         !std::filesystem::exists("help", error);
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv, int& status) {
  const std::vector<std::string> args(argv + 1, argv + std::max(argc, 1));
  const ParsedLine line = parse_line(ktx_compile_tool(), args);
  status = 0;
  Mistakes mistakes = line.mistakes;
  if (print_about(ktx_compile_tool(), line, wants_help(line), mistakes)) return std::nullopt;
  std::optional<Options> options;
  if (mistakes.empty()) options = read_options(line, mistakes);
  if (mistakes.empty()) return options;
  for (const std::string& message : mistakes) say_error("ktx-compile", message);
  status = 2;
  return std::nullopt;
}

}  // namespace ktx::tools
