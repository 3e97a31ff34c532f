// Every option of ktx-compile, in one place. The only file of this tool that
// knows LLVM.
#include "tools/ktx-compile/options.h"

#include <fmt/format.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/raw_ostream.h>

#include <algorithm>
#include <filesystem>

#include "lib/input/file_kind.h"
#include "lib/passes/pass.h"
#include "lib/rules/checks.h"
#include "lib/support/mapped_file.h"
#include "lib/text/chat_template/template_var.h"
#include "tools/llvm_streams.h"
#include "tools/option_values.h"
#include "tools/unknown_flags.h"

namespace cl = llvm::cl;

namespace ktx::tools {
namespace {

constexpr const char* kOverview = R"(compiles a model into one plan that ktx-run maps and executes

EXAMPLES:
  ktx-compile model.gguf -o model.ktxplan
  ktx-compile model-00001-of-00003.gguf rules.yaml -o model.ktxplan --ctx 32768
  ktx-compile model.gguf --emit=step-ir --stop-after=lower-to-steps
  ktx-compile --check rules.yaml model.gguf --target=rtx-4090 --ctx 32768
  ktx-compile --check rules.yaml --hf-config config.json --coverage
  ktx-compile --tokenize prompt.txt model.gguf
  ktx-compile --render-chat case.json model.gguf --template-var enable_thinking=false

Files are told apart by their first bytes: the GGUF (give the first shard), YAML
rule files, which are optional. config.json beside the GGUF is found by itself.
Exit status: 0 done, 1 failed, 2 wrong usage, 3 warnings under --strict.
)";

cl::OptionCategory g_category("ktx-compile options");

cl::list<std::string> g_files(cl::Positional, cl::desc("MODEL.gguf [RULES.yaml ...]"),
                              cl::cat(g_category));
cl::opt<std::string> g_output("o", cl::desc("the plan to write"), cl::value_desc("FILE"),
                              cl::cat(g_category));
cl::opt<std::string> g_hf_config("hf-config", cl::desc("config.json, or the folder it is in"),
                                 cl::value_desc("PATH"), cl::cat(g_category));
cl::opt<bool> g_hf_config_details("hf-config-details",
                                  cl::desc("each key in which a config of another model differs"),
                                  cl::cat(g_category));
cl::opt<std::string> g_tokenizer(
    "tokenizer", cl::desc("tokenizer.json or tokenizer.model instead of the GGUF's"),
    cl::value_desc("PATH"), cl::cat(g_category));
cl::opt<std::string> g_trust("trust", cl::desc("who is right where GGUF and config.json disagree"),
                             cl::value_desc("config|gguf"), cl::cat(g_category));
cl::opt<std::string> g_ctx("ctx", cl::desc("default context of ktx-run, tokens per sequence"),
                           cl::value_desc("N"), cl::cat(g_category));
cl::opt<std::string> g_max_batch("max-batch", cl::desc("default number of sequences at once"),
                                 cl::value_desc("N"), cl::cat(g_category));
cl::opt<std::string> g_kv_budget("kv-budget",
                                 cl::desc("default limit of the KV cache: 8G, 512M, bytes"),
                                 cl::value_desc("SIZE"), cl::cat(g_category));
cl::opt<bool> g_drop_unused(
    "drop-unused", cl::desc("leave out tensors that no step reads (no --export-gguf then)"),
    cl::cat(g_category));
cl::opt<std::string> g_threads("t", cl::desc("threads for packing (all cores)"),
                               cl::value_desc("N"), cl::cat(g_category));
cl::opt<std::string> g_emit("emit", cl::desc("print the graph instead of writing a plan"),
                            cl::value_desc("module-ir|step-ir"), cl::cat(g_category));
cl::opt<std::string> g_stop_after("stop-after", cl::desc("run the passes up to this one"),
                                  cl::value_desc("PASS"), cl::cat(g_category));
cl::list<std::string> g_print_after("print-after", cl::desc("print the graph after these passes"),
                                    cl::value_desc("PASS|all"), cl::CommaSeparated,
                                    cl::cat(g_category));
cl::opt<bool> g_time_passes("time-passes", cl::desc("print the time of each pass"),
                            cl::cat(g_category));
cl::opt<bool> g_quiet("q", cl::desc("print warnings and errors only"), cl::cat(g_category));
cl::opt<bool> g_check("check", cl::desc("check rules and model without reading weights"),
                      cl::cat(g_category));
cl::opt<bool> g_strict("strict", cl::desc("with --check: exit with 3 on warnings"),
                       cl::cat(g_category));
cl::opt<std::string> g_target(
    "target", cl::desc("the machine to compile for, a YAML file or a profile such as rtx-4090"),
    cl::value_desc("FILE"), cl::cat(g_category));
cl::opt<std::string> g_inputs(
    "inputs", cl::desc("activations of quantised products in fast precision (int8)"),
    cl::value_desc("int8|bf16"), cl::cat(g_category));
cl::opt<std::string> g_dialect("dialect", cl::desc("with --check: whom the rules are for (ktx)"),
                               cl::value_desc("ktx|ktransformers"), cl::cat(g_category));
cl::opt<bool> g_list_unruled("list-unruled", cl::desc("print the modules without a rule"),
                             cl::cat(g_category));
cl::opt<bool> g_coverage("coverage", cl::desc("print what each rule decides"), cl::cat(g_category));
cl::opt<bool> g_estimate("estimate", cl::desc("print memory, largest context and predicted speed"),
                         cl::cat(g_category));
cl::list<std::string> g_explain("explain", cl::desc("print why a module is where it is"),
                                cl::value_desc("PATH"), cl::cat(g_category));
cl::opt<std::string> g_report("report", cl::desc("write a page that shows the placement"),
                              cl::value_desc("FILE.html"), cl::cat(g_category));
cl::opt<bool> g_fix("fix", cl::desc("with --check: apply the fix-its to the rule files"),
                    cl::cat(g_category));
cl::opt<std::string> g_format("diagnostics-format",
                              cl::desc("with --check: form of the findings (text)"),
                              cl::value_desc("text|json|sarif"), cl::cat(g_category));
cl::list<std::string> g_warnings("W", cl::Prefix,
                                 cl::desc("-Werror[=CODE], -Wno-error=CODE, -Wno-CODE"),
                                 cl::value_desc("FLAG"), cl::cat(g_category));
cl::opt<std::string> g_explain_code("explain-code",
                                    cl::desc("print what a KTX code means; `all` lists them"),
                                    cl::value_desc("CODE"), cl::cat(g_category));
cl::opt<bool> g_schema("print-rules-schema", cl::desc("print the JSON Schema of rule files"),
                       cl::cat(g_category));
cl::opt<std::string> g_tokenize(
    "tokenize", cl::desc("print the token ids of FILE as a JSON array, without BOS"),
    cl::value_desc("FILE"), cl::cat(g_category));
cl::opt<bool> g_parse_special("parse-special",
                              cl::desc("with --tokenize: special tokens in the text count as such"),
                              cl::cat(g_category));
cl::opt<std::string> g_render_chat(
    "render-chat", cl::desc("print the prompt that the chat template makes of CASE"),
    cl::value_desc("CASE.json"), cl::cat(g_category));
cl::opt<std::string> g_template(
    "template", cl::desc("with --render-chat: this template instead of the model's"),
    cl::value_desc("FILE"), cl::cat(g_category));
cl::list<std::string> g_template_vars(
    "template-var", cl::desc("with --render-chat: a variable of the template; JSON or a string"),
    cl::value_desc("KEY=VALUE"), cl::cat(g_category));
cl::opt<std::string> g_bos("bos", cl::desc("with --render-chat: the text of bos_token"),
                           cl::value_desc("TEXT"), cl::cat(g_category));
cl::opt<std::string> g_eos("eos", cl::desc("with --render-chat: the text of eos_token"),
                           cl::value_desc("TEXT"), cl::cat(g_category));
cl::opt<std::string> g_now("now", cl::desc("with --render-chat: the time, 2024-12-31[T23:59:59]"),
                           cl::value_desc("TIME"), cl::cat(g_category));

// Says what is wrong on stderr, and remembers that something was.
class Checker {
 public:
  void fail(const std::string& message) {
    llvm::errs() << "ktx-compile: error: " << message << "\n";
    ok_ = false;
  }
  int64_t number(const cl::opt<std::string>& option, int64_t missing, int64_t low, int64_t high) {
    if (option.getNumOccurrences() == 0) return missing;
    const std::optional<int64_t> value = parse_whole(std::string(option), low, high);
    if (!value) {
      fail(fmt::format("{}{} takes a whole number from {} to {}, not '{}'",
                       option.ArgStr.size() > 1 ? "--" : "-", option.ArgStr.str(), low, high,
                       std::string(option)));
    }
    return value.value_or(low);
  }
  int64_t bytes(const cl::opt<std::string>& option) {
    if (option.getNumOccurrences() == 0) return 0;
    const std::optional<int64_t> size = parse_size(std::string(option));
    if (!size) {
      fail(fmt::format("--{} takes a size such as 512M or 8G, not '{}'", option.ArgStr.str(),
                       std::string(option)));
    }
    return size.value_or(0);
  }
  std::string choice(const cl::opt<std::string>& option, std::string_view a, std::string_view b) {
    const std::string value = option;
    if (!value.empty() && value != a && value != b) {
      fail(fmt::format("--{} takes {} or {}, not '{}'", option.ArgStr.str(), a, b, value));
    }
    return value;
  }
  bool ok() const { return ok_; }

 private:
  bool ok_ = true;
};

// Options that are not ours; -Werror and the like are one option and what follows it.
bool only_own_flags(int argc, char** argv, Checker& check) {
  std::vector<std::string> args;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    args.emplace_back(arg.starts_with("-W") ? "-W=" : arg);
  }
  const ReadFlags read = read_flags("compile", args, own_flags(*cl::TopLevelSubCommand));
  for (const std::string& message : read.mistakes) check.fail(message);
  return check.ok();
}

// A folder instead of a file: which of its files was meant.
std::string about_folder(const std::string& path) {
  std::error_code error;
  std::vector<std::string> models;
  bool safetensors = false;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    if (entry.path().extension() == ".gguf") models.push_back(entry.path().string());
    safetensors = safetensors || entry.path().extension() == ".safetensors";
  }
  std::sort(models.begin(), models.end());
  if (!models.empty()) {
    return fmt::format("{} is a folder; name the GGUF in it{}: {}", path,
                       models.size() > 1 ? " (of shards the first)" : "", models.front());
  }
  const std::string convert = fmt::format(
      "make a GGUF of it with llama.cpp's convert_hf_to_gguf.py, then: ktx-compile model.gguf "
      "--hf-config {} -o model.ktxplan",
      path);
  return safetensors ? fmt::format(
                           "{} is a folder of safetensors, and weights are read from a "
                           "GGUF; {}",
                           path, convert)
                     : fmt::format("{} is a folder without a GGUF; {}", path, convert);
}

// Sorts the positional files by what they are.
void sort_files(Options& options, Checker& check) {
  std::vector<std::string> unread;
  for (const std::string& path : g_files) {
    std::error_code error;
    if (std::filesystem::is_directory(path, error)) {
      check.fail(about_folder(path));
      continue;
    }
    const bool is_yaml = path.ends_with(".yaml") || path.ends_with(".yml");
    Result<MappedFile> file = MappedFile::open(path);
    if (!file) {
      unread.push_back(path);
      continue;
    }
    const input::FileKind kind = input::file_kind(file->bytes());
    // Rule files may be empty, JSON (which is YAML) or missing: their reader says so.
    if (kind == input::FileKind::Text || (is_yaml && kind != input::FileKind::Gguf)) {
      options.rules.push_back(path);
    } else if (kind == input::FileKind::KtxPlan) {
      check.fail(fmt::format("{} is a plan already; run it with ktx-run", path));
    } else if (kind == input::FileKind::Json) {
      check.fail(fmt::format("{0} is a JSON file; give a config as --hf-config {0}", path));
    } else if (kind == input::FileKind::SafeTensors) {
      check.fail(
          fmt::format("{} is a safetensors file, and weights are read from a GGUF; make one "
                      "with llama.cpp's convert_hf_to_gguf.py",
                      path));
    } else if (options.model.empty()) {
      options.model = path;  // whatever it is, the reader says what is wrong with it
    } else {
      check.fail(fmt::format("two models given, '{}' and '{}' ({}); name one", options.model, path,
                             input::describe(kind)));
    }
  }
  // A file that cannot be opened is no wrong usage: whoever reads it will say so.
  for (const std::string& path : unread) {
    const bool is_yaml = path.ends_with(".yaml") || path.ends_with(".yml");
    if (is_yaml || !options.model.empty()) {
      options.rules.push_back(path);
    } else {
      options.model = path;
    }
  }
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv) {
  cl::HideUnrelatedOptions(g_category);
  watch_llvm_streams("ktx-compile");
  cl::SetVersionPrinter(
      [](llvm::raw_ostream& out) { out << "ktx-compile " << KTX_VERSION << "\n"; });
  Checker check;
  if (!only_own_flags(argc, argv, check)) return std::nullopt;
  if (!cl::ParseCommandLineOptions(argc, argv, kOverview, &llvm::errs())) return std::nullopt;
  Options options;
  options.output = g_output;
  options.hf_config = g_hf_config;
  options.hf_config_details = g_hf_config_details;
  options.tokenizer = g_tokenizer;
  options.trust = check.choice(g_trust, "config", "gguf");
  options.ctx = check.number(g_ctx, 0, 1, kMaxCtx);
  options.max_batch = check.number(g_max_batch, 1, 1, 4096);
  options.kv_budget_bytes = check.bytes(g_kv_budget);
  options.drop_unused = g_drop_unused;
  options.bf16_inputs = check.choice(g_inputs, "int8", "bf16") == "bf16";
  options.threads = static_cast<int>(check.number(g_threads, 0, 1, 1024));
  options.emit = check.choice(g_emit, "module-ir", "step-ir");
  options.stop_after = g_stop_after;
  options.print_after.assign(g_print_after.begin(), g_print_after.end());
  passes::PassOptions named;
  named.stop_after = options.stop_after;
  named.print_after = options.print_after;
  if (const Status known = passes::check_pass_names(named); !known) {
    check.fail(known.error().message);
  }
  options.time_passes = g_time_passes;
  options.quiet = g_quiet;
  options.strict = g_strict;
  options.target = g_target;
  options.dialect = check.choice(g_dialect, "ktx", "ktransformers");
  options.list_unruled = g_list_unruled;
  options.coverage = g_coverage;
  options.estimate = g_estimate;
  options.fix = g_fix;
  options.explain.assign(g_explain.begin(), g_explain.end());
  options.report = g_report;
  options.diagnostics_format = g_format;
  if (!options.diagnostics_format.empty() && options.diagnostics_format != "text" &&
      options.diagnostics_format != "json" && options.diagnostics_format != "sarif") {
    check.fail(fmt::format("--diagnostics-format takes text, json or sarif, not '{}'",
                           options.diagnostics_format));
  }
  options.check = g_check || options.list_unruled || options.coverage || options.estimate ||
                  options.fix || !options.explain.empty() || !options.report.empty();
  DiagPolicy policy;
  for (const std::string& flag : g_warnings) {
    const Status added = rules::add_warning_flag(flag, policy);
    if (!added) check.fail(added.error().message);
    options.warnings.push_back(flag);
  }
  options.explain_code = g_explain_code;
  options.print_schema = g_schema;
  if (g_tokenize.getNumOccurrences()) options.tokenize_file = g_tokenize;
  options.parse_special = g_parse_special;
  if (g_render_chat.getNumOccurrences()) options.render_chat_case = g_render_chat;
  options.chat_template_file = g_template;
  auto template_vars = text::parse_template_vars(
      std::vector<std::string>(g_template_vars.begin(), g_template_vars.end()));
  if (!template_vars) check.fail("--template-var: " + template_vars.error().message);
  options.template_vars = template_vars.ok() ? template_vars.take() : nlohmann::ordered_json();
  options.bos = g_bos;
  options.eos = g_eos;
  options.bos_given = g_bos.getNumOccurrences() > 0;
  options.eos_given = g_eos.getNumOccurrences() > 0;
  options.now = g_now;
  sort_files(options, check);

  if (!options.explain_code.empty() || options.print_schema) {
    return check.ok() ? std::optional(options) : std::nullopt;
  }
  if (!options.check &&
      (options.strict || !options.dialect.empty() || !options.diagnostics_format.empty())) {
    check.fail("--strict, --dialect and --diagnostics-format go with --check");
  }
  if (options.check && !options.output.empty()) {
    check.fail("--check and its reports write no plan; leave -o out");
  }
  if (options.check && options.model.empty() && options.hf_config.empty() && check.ok()) {
    check.fail(
        "no model given; try: ktx-compile --check rules.yaml model.gguf, or --hf-config "
        "config.json for a check without weights");
  }
  if (options.check) return check.ok() ? std::optional(options) : std::nullopt;
  const bool text_only = options.tokenize_file || options.render_chat_case;
  if (options.model.empty() && check.ok() &&
      !(options.tokenize_file && !options.tokenizer.empty()) &&
      !(options.render_chat_case && !options.chat_template_file.empty())) {
    const std::string taken =
        options.rules.empty()
            ? ""
            : fmt::format(" ({} is no GGUF and was taken as a rule file)", options.rules.front());
    check.fail(
        fmt::format("no model given{}; try: ktx-compile model.gguf -o model.ktxplan", taken));
  }
  const bool report_only = text_only || !options.emit.empty() || !options.stop_after.empty();
  if (check.ok() && options.output.empty() && !report_only) {
    check.fail("no -o given; try: ktx-compile " + shell_word(options.model) + " -o model.ktxplan");
  }
  if (!check.ok()) return std::nullopt;
  return options;
}

}  // namespace ktx::tools
