#include "tools/ktx-compile/check.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "lib/arch/build_graph.h"
#include "lib/arch/usual_types.h"
#include "lib/input/model_source.h"
#include "lib/passes/cost/estimate_text.h"
#include "lib/passes/cost/launched_steps.h"
#include "lib/passes/placement/next_move.h"
#include "lib/rules/checks.h"
#include "lib/rules/rule_keys.h"
#include "lib/rules/yaml_tree.h"
#include "lib/support/env.h"
#include "lib/support/mapped_file.h"
#include "lib/support/strings.h"
#include "lib/support/write_file.h"
#include "tools/ktx-compile/compare_quants.h"
#include "tools/ktx-compile/compile_inputs.h"
#include "tools/ktx-compile/coverage.h"
#include "tools/ktx-compile/diag_formats.h"
#include "tools/ktx-compile/drafter_plan.h"
#include "tools/ktx-compile/explain.h"
#include "tools/ktx-compile/report_html.h"
#include "tools/ktx-compile/sarif.h"
#include "tools/ktx-compile/text_check.h"
#include "tools/ktx-compile/tower_plan.h"
#include "tools/option_readers.h"

namespace ktx::tools {
namespace {

namespace fs = std::filesystem;

// The byte order mark of a file that has one; a source is without it.
std::string mark_of(const std::string& path) {
  const Result<std::string> text = read_text_file(path);
  return text && text->starts_with(rules::kByteOrderMark) ? std::string(rules::kByteOrderMark) : "";
}

class Checker {
 public:
  explicit Checker(const Options& options) : options_(options) {
    sink_.set_policy(policy_of(options));
    state_.diags = &sink_;
    state_.check.only = true;
    state_.prefer = options.prefer;
    state_.check.has_gguf = !options.model.empty();
    if (options.dialect == "ktransformers") {
      state_.check.dialect = rules::Dialect::KTransformers;
    }
  }

  int run() {
    read_rule_files(options_.rules, state_);
    read_target_file(options_, state_);
    if (build()) walk();
    return finish();
  }

 private:
  // The module graph of the GGUF, or of a config alone. False: there is none.
  bool build() {
    if (!options_.model.empty()) {
      input::ModelInputs inputs;
      inputs.gguf_path = options_.model;
      if (!options_.hf_config.empty()) inputs.hf_config_path = options_.hf_config;
      if (!options_.tokenizer.empty()) inputs.tokenizer_path = options_.tokenizer;
      if (options_.trust == "config") inputs.trust = input::Trust::Config;
      if (options_.trust == "gguf") inputs.trust = input::Trust::Gguf;
      inputs.header_only_ok = true;
      inputs.all_differences = options_.hf_config_details;
      inputs.accept = arch::accept_architecture;
      Result<input::ModelSource> source = input::open_model(inputs, sink_);
      if (!source) return fail("T001", source.error().message);
      // If the config is of another model, nothing more is worth checking.
      const auto other_model = [](const Diagnostic& diag) {
        return diag.severity == Severity::Error && diag.code == "T002";
      };
      if (std::any_of(sink_.all().begin(), sink_.all().end(), other_model)) return false;
      source_ = source.take();
      config_ = source_->config;
      const std::string& text = options_.tokenizer.empty() ? options_.model : options_.tokenizer;
      check_tokenizer(source_->tokenizer, text, sink_);
      const auto templates = templates_to_use(options_, source_->chat_templates);
      if (!templates) return fail("S002", templates.error().message);
      templates_ = check_chat_template(*templates, source_->tokenizer, options_.model, sink_);
    } else {
      Result<input::HfConfig> config = input::HfConfig::read(options_.hf_config);
      if (!config) return fail_config(config.error().message);
      config_ = config.take();
      check_text_of_folder(options_.hf_config, sink_);
    }
    const auto arch = arch::pick_architecture(config_);
    if (!arch) return fail("C002", arch.error().message);
    Result<ir::ModuleGraph> graph = source_ ? arch::build_graph(*source_, sink_, options_.ctx)
                                            : arch::build_graph(config_, sink_, options_.ctx);
    if (!graph) return sink_.errors() > 0 ? false : fail("C002", graph.error().message);
    state_.modules = graph.take();
    describe_chat_template(templates_, state_.modules.facts.architecture, options_.model, sink_);
    if (!options_.quants.empty()) {
      arch::take_usual_types(*arch::find_usual_types(options_.quants.front()), state_.modules);
    }
    state_.config = &config_;
    built_ = true;
    set_run_shape(options_, state_);
    read_expert_profiles(options_, state_);
    if (!options_.mmproj.empty()) {
      if (const Status one = check_hosts_of_tower(state_); !one) {
        return fail("", one.error().message);
      }
    }
    if (!options_.draft.empty() && !place_drafter()) return false;
    return options_.mmproj.empty() || place_tower();
  }

  // The tower of --mmproj.
  bool place_tower() {
    if (!source_) return fail("", "--mmproj needs the GGUF of the model");
    const Result<TowerEstimate> tower = estimate_tower(options_, *source_, state_);
    if (!tower) return fail("", tower.error().message);
    tower_ = tower->text;
    take_images(tower->image, state_);
    return true;
  }

  // The drafter of --draft is placed before the model.
  bool place_drafter() {
    if (!source_) return fail("", "--draft needs the GGUF of the model");
    Result<std::string> text = estimate_drafter(options_, *source_, state_);
    if (!text) return fail("", text.error().message);
    drafter_ = text.take();
    return true;
  }

  // A message may bring its own code at its end: "... [KTX-Q002]".
  bool fail(std::string code, std::string message) {
    const size_t own = message.rfind(" [KTX-");
    if (own != std::string::npos && message.ends_with(']')) {
      code = message.substr(own + 6, message.size() - own - 7);
      message.resize(own);
    }
    sink_.error({}, std::move(code), std::move(message));
    return false;
  }

  bool fail_config(const std::string& message) {
    std::error_code error;
    const bool missing = !fs::exists(options_.hf_config, error);
    sink_.error({}, missing ? "R008" : "I004", message);
    return false;
  }

  void walk() {
    passes::PassOptions passes;
    // Whether each of several quantisations fits is for their table to say.
    passes.stop_after = options_.quants.size() > 1 ? "check-hand-overs" : "check-memory";
    // The Status only counts the errors, unless a pass itself failed.
    const int before = sink_.errors();
    const Status passed = passes::run_passes(state_, passes);
    if (!passed && sink_.errors() == before && before == 0)
      sink_.error({}, "", passed.error().message);
    walked_ = state_.fact == passes::Fact::Placed;
  }

  // Parts that could not be checked; printed last.
  void note_limits() {
    const bool nothing_read = state_.rules.rules.empty() && sink_.errors() > 0;
    if (!built_ || nothing_read) return;
    if (!source_ && options_.quants.size() < 2) {
      sink_.note(
          {}, "",
          fmt::format("no GGUF given: tensors are taken to have the types of a usual {} file",
                      options_.quants.empty() ? "Q4_K_M" : options_.quants.front()));
    }
    if (options_.target.empty()) {
      sink_.note({}, "",
                 "no --target given: whether devices exist and hold the model is not checked");
    }
  }

  int finish() {
    note_limits();
    const bool text = options_.diagnostics_format.empty() || options_.diagnostics_format == "text";
    sink_.sort_by_severity();
    if (options_.fix) fix_files();
    print_results(text);
    if (!options_.report.empty() && walked_) write_report();
    if (text) {
      const bool color = isatty(STDERR_FILENO) && !env("NO_COLOR");
      // What else is remarkable of a file for another model does not matter yet.
      const bool with_notes = !options_.quiet && !state_.wrong_model;
      fmt::print(stderr, "{}", render_diagnostics(sink_, 0, color, with_notes));
      print_summary();
    } else if (options_.diagnostics_format == "sarif") {
      fmt::print("{}", to_sarif(sink_, {.finished = built_, .exit_status = exit_status()}));
    } else {
      const std::string coverage = options_.coverage && walked_ ? coverage_json(state_) : "";
      fmt::print("{}", to_json(sink_, coverage));
    }
    return exit_status();
  }

  // The steps with their kernels; null where the model cannot be lowered. Made once.
  const program::Program* launched() {
    if (!launched_) launched_.emplace(passes::launched_steps(state_));
    return launched_->ok() ? &**launched_ : nullptr;
  }

  int exit_status() const {
    if (sink_.errors() > 0) return 1;
    return sink_.warnings() > 0 && options_.strict ? 3 : 0;
  }

  // JSON and SARIF have stdout to themselves.
  void print_results(bool text) {
    if (!walked_) return;
    std::FILE* out = text ? stdout : stderr;
    if (text && options_.coverage) fmt::print("{}", coverage_table(state_));
    if (options_.list_unruled) fmt::print(out, "{}", unruled_list(state_));
    for (const std::string& path : options_.explain) {
      const Result<std::string> explained = explain_module(state_, launched(), path);
      if (!explained) sink_.error({}, "", explained.error().message);
      if (explained) fmt::print(out, "{}", *explained);
    }
    if (options_.quants.size() > 1) {
      const Result<std::string> table = compare_quants(options_, state_);
      if (table) fmt::print(out, "{}", *table);
      if (!table) sink_.error({}, "", table.error().message);
    } else if (options_.estimate) {
      auto estimate = passes::estimate_of(state_);
      if (estimate) {
        fmt::print(out, "{}", passes::print_estimate(*estimate));
        fmt::print(out, "{}", passes::next_best_move(state_, *estimate));
        fmt::print(out, "{}{}", drafter_, tower_);
      } else {
        sink_.error({}, "", estimate.error().message);
      }
    }
  }

  void print_summary() {
    if (options_.quiet && sink_.errors() + sink_.warnings() == 0) return;
    const auto count = [](int n, const char* noun) {
      return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
    };
    int rules = 0;
    for (const rules::RuleFile& file : state_.rules.files) rules += file.rules;
    std::string what = fmt::format("{} checked", count(rules, "rule"));
    if (built_) {
      what += fmt::format(" against {} ({} layers, {} modules)", state_.modules.facts.family,
                          state_.modules.facts.layers, state_.matched.modules);
    }
    fmt::print(stderr, "{}: {}, {}\n", what, count(sink_.errors(), "error"),
               count(sink_.warnings(), "warning"));
  }

  void write_report() {
    const std::string html = report_html(state_, walked_ ? launched() : nullptr);
    std::fflush(stdout);  // what stands before it, where it goes to /dev/stdout
    const Status written = write_file(options_.report, "<!doctype html>", html);
    if (!written) sink_.error({}, "", written.error().message);
  }

  void fix_files() {
    std::vector<std::string> paths = options_.rules;
    if (!options_.target.empty()) paths.push_back(target_path(options_.target));
    for (const std::string& path : paths) {
      const std::string* source = sink_.source(path);
      int applied = 0;
      const std::string fixed = source ? apply_fixes(sink_, path, *source, applied) : "";
      if (applied == 0) continue;
      if (const Status written = replace_file(path, "", mark_of(path) + fixed); !written) {
        sink_.error({}, "", written.error().message + "; no fix-it was applied");
        continue;
      }
      fmt::print(stderr, "{}: {} fix-it{} applied; check it again\n", path, applied,
                 applied == 1 ? "" : "s");
    }
  }

  const Options& options_;
  DiagSink sink_;
  passes::CompileState state_;
  std::optional<Result<program::Program>> launched_;
  std::optional<input::ModelSource> source_;
  input::HfConfig config_;
  plan::PlanChatTemplate templates_;
  std::string drafter_, tower_;  // their estimates
  bool built_ = false;
  bool walked_ = false;
};

}  // namespace

int run_explain_code(const Options& options) {
  if (options.print_schema) {
    fmt::print("{}", rules::rules_json_schema());
    return 0;
  }
  if (const rules::CheckInfo* check = rules::find_check(options.explain_code)) {
    fmt::print("{}", rules::explain_check(*check));
    return 0;
  }
  if (options.explain_code == "all") {
    fmt::print("{}", rules::list_checks());
    return 0;
  }
  fmt::print(stderr, "ktx-compile: error: no check '{}'{}\n  `--explain-code all` lists them\n",
             printable(options.explain_code), rules::nearest_check(options.explain_code));
  return 2;
}

int run_check(const Options& options) {
  return Checker(options).run();
}

}  // namespace ktx::tools
