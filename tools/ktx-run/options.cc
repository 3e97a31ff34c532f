// Every option of ktx-run, in one place. The only file of this tool that knows
// LLVM.
#include "tools/ktx-run/options.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/raw_ostream.h>

#include <algorithm>
#include <filesystem>

#include "lib/support/strings.h"
#include "lib/text/chat_template/template_var.h"
#include "tools/ktx-run/serve_settings.h"
#include "tools/llvm_streams.h"
#include "tools/option_values.h"
#include "tools/unknown_flags.h"

namespace cl = llvm::cl;

namespace ktx::tools {
namespace {

constexpr const char* kOverview = R"(maps a plan and runs it

EXAMPLES:
  ktx-run chat model.ktxplan
  ktx-run chat model.ktxplan --system "You are brief." --temp 0.7
  ktx-run chat model.ktxplan --template-var enable_thinking=false
  ktx-run generate model.ktxplan --chat --prompt "Tell me a story." -n 100
  ktx-run generate model.ktxplan --prompt-ids 1,2,3 --temp 0 --json --logprobs 5
  ktx-run serve model.ktxplan --port 8080 --max-batch 8
  ktx-run inspect model.ktxplan --verify
  ktx-run inspect model.ktxplan --export-gguf copy.gguf
  ktx-run bench model.ktxplan -p 512 -n 128 -r 5 -t 8 -o md

A plan is made by ktx-compile: ktx-compile model.gguf -o model.ktxplan
`ktx-run COMMAND --help` lists the options of a command.
Exit status: 0 done, 1 failed, 2 wrong usage.
)";

cl::OptionCategory g_category("ktx-run options");

cl::SubCommand g_generate("generate", "answer one prompt");
cl::SubCommand g_chat("chat", "talk to the model");
cl::SubCommand g_serve("serve", "answer over HTTP: OpenAI, Ollama and Anthropic clients, a page");
cl::SubCommand g_inspect("inspect", "show what a plan holds");
cl::SubCommand g_bench("bench", "measure prompt and generation speed");

// One declaration for an option of several commands.
#define KTX_RUNS cl::sub(g_generate), cl::sub(g_chat), cl::sub(g_bench), cl::sub(g_serve)
#define KTX_TALKS cl::sub(g_generate), cl::sub(g_chat)
#define KTX_SAMPLES KTX_TALKS, cl::sub(g_serve)

cl::opt<std::string> g_plan(cl::Positional, cl::desc("PLAN"), cl::sub(*cl::AllSubCommands),
                            cl::cat(g_category));
cl::list<std::string> g_threads("t", cl::desc("threads (one per core); bench takes a list"),
                                cl::value_desc("N"), cl::CommaSeparated, KTX_RUNS,
                                cl::cat(g_category));
cl::opt<std::string> g_precision(
    "precision", cl::desc("exact: activations and KV cache in F32; fast: int8 and F16"),
    cl::value_desc("exact|fast"), KTX_RUNS, cl::cat(g_category));
cl::opt<std::string> g_pin("pin",
                           cl::desc("hold threads on their cores (auto: with several NUMA nodes)"),
                           cl::value_desc("auto|on|off"), KTX_RUNS, cl::cat(g_category));
cl::opt<std::string> g_kv_type("kv-type", cl::desc("elements of the KV cache (f16)"),
                               cl::value_desc("f32|f16|q8"), KTX_RUNS, cl::cat(g_category));
cl::opt<std::string> g_ctx("ctx", cl::desc("tokens per sequence (the plan's default)"),
                           cl::value_desc("N"), KTX_RUNS, cl::cat(g_category));
cl::opt<std::string> g_chunk("chunk",
                             cl::desc("tokens of a prompt in one step (the plan's choice)"),
                             cl::value_desc("N"), KTX_RUNS, cl::cat(g_category));
cl::opt<std::string> g_max_batch("max-batch", cl::desc("sequences at once (the plan's default)"),
                                 cl::value_desc("N"), KTX_RUNS, cl::cat(g_category));
cl::opt<std::string> g_kv_budget("kv-budget", cl::desc("limit of the KV cache: 8G, 512M, bytes"),
                                 cl::value_desc("SIZE"), KTX_RUNS, cl::cat(g_category));
cl::opt<std::string> g_temp("temp", cl::desc("temperature; 0 takes the best token (0.8)"),
                            cl::value_desc("T"), KTX_SAMPLES, cl::cat(g_category));
cl::opt<std::string> g_top_k("top-k", cl::desc("only the K best tokens; 0: all (40)"),
                             cl::value_desc("K"), KTX_SAMPLES, cl::cat(g_category));
cl::opt<std::string> g_top_p("top-p", cl::desc("only the best tokens with this share (0.95)"),
                             cl::value_desc("P"), KTX_SAMPLES, cl::cat(g_category));
cl::opt<std::string> g_min_p("min-p",
                             cl::desc("only tokens with this share of the best one's (0.05)"),
                             cl::value_desc("P"), KTX_SAMPLES, cl::cat(g_category));
cl::opt<std::string> g_repetition("repetition-penalty",
                                  cl::desc("of tokens already there (1: none)"),
                                  cl::value_desc("X"), KTX_SAMPLES, cl::cat(g_category));
cl::opt<std::string> g_presence("presence-penalty", cl::desc("once per token already there (0)"),
                                cl::value_desc("X"), KTX_SAMPLES, cl::cat(g_category));
cl::opt<std::string> g_frequency("frequency-penalty", cl::desc("per occurrence of a token (0)"),
                                 cl::value_desc("X"), KTX_SAMPLES, cl::cat(g_category));
cl::opt<std::string> g_seed("seed", cl::desc("of the sampler (from the clock)"),
                            cl::value_desc("N"), KTX_TALKS, cl::cat(g_category));

cl::opt<std::string> g_prompt("prompt", cl::desc("the text; special tokens in it count as such"),
                              cl::value_desc("TEXT"), cl::sub(g_generate), cl::cat(g_category));
cl::opt<std::string> g_prompt_file("prompt-file", cl::desc("the text is in FILE; -: from a pipe"),
                                   cl::value_desc("FILE"), cl::sub(g_generate),
                                   cl::cat(g_category));
cl::list<std::string> g_prompt_ids("prompt-ids", cl::desc("token ids; nothing is added"),
                                   cl::value_desc("1,2,3"), cl::CommaSeparated, cl::sub(g_generate),
                                   cl::cat(g_category));
cl::opt<bool> g_as_chat("chat", cl::desc("the text is a user's message: use the chat template"),
                        cl::sub(g_generate), cl::cat(g_category));
// -n is a number for generate and a list for bench.
cl::list<std::string> g_n("n", cl::desc("tokens to generate; bench takes a list (128)"),
                          cl::value_desc("N"), cl::CommaSeparated, cl::sub(g_generate),
                          cl::sub(g_chat), cl::sub(g_bench), cl::cat(g_category));
cl::opt<std::string> g_on_full("on-full",
                               cl::desc("a full context: stop, or drop the oldest turns (stop)"),
                               cl::value_desc("stop|drop"), cl::sub(g_chat), cl::cat(g_category));
cl::opt<std::string> g_logprobs("logprobs", cl::desc("with --json: the K best tokens of each step"),
                                cl::value_desc("K"), cl::sub(g_generate), cl::cat(g_category));
cl::opt<bool> g_json("json", cl::desc("print one JSON object"), cl::sub(g_generate),
                     cl::sub(g_inspect), cl::cat(g_category));
cl::opt<std::string> g_system("system", cl::desc("the system message"), cl::value_desc("TEXT"),
                              KTX_TALKS, cl::cat(g_category));
cl::list<std::string> g_template_vars(
    "template-var", cl::desc("a variable of the chat template, such as enable_thinking=false"),
    cl::value_desc("KEY=VALUE"), KTX_TALKS, cl::cat(g_category));
cl::opt<bool> g_stats("stats", cl::desc("print speeds after each answer"), KTX_TALKS,
                      cl::cat(g_category));
cl::opt<bool> g_verify("verify", cl::desc("check the hashes of all weights"), cl::sub(g_inspect),
                       KTX_RUNS, cl::cat(g_category));
cl::opt<bool> g_huge_pages("huge-pages",
                           cl::desc("copy the plan into huge pages instead of mapping it"),
                           KTX_RUNS, cl::cat(g_category));
cl::opt<bool> g_check_finite("check-finite",
                             cl::desc("look at every result of a GPU for infinity and NaN; slow"),
                             KTX_RUNS, cl::cat(g_category));
cl::opt<std::string> g_export("export-gguf", cl::desc("rebuild the GGUF, bit for bit"),
                              cl::value_desc("OUT.gguf"), cl::sub(g_inspect), cl::cat(g_category));
cl::list<std::string> g_p("p", cl::desc("prompt lengths to measure (512)"), cl::value_desc("N"),
                          cl::CommaSeparated, cl::sub(g_bench), cl::cat(g_category));
cl::list<std::string> g_depth("d", cl::desc("tokens already in the cache (0)"), cl::value_desc("N"),
                              cl::CommaSeparated, cl::sub(g_bench), cl::cat(g_category));
cl::list<std::string> g_batch("b", cl::desc("sequences that generate side by side (1)"),
                              cl::value_desc("N"), cl::CommaSeparated, cl::sub(g_bench),
                              cl::cat(g_category));
cl::opt<bool> g_kernels("kernels",
                        cl::desc("also the time of each kind of GPU kernel, beside the floor"),
                        cl::sub(g_bench), cl::cat(g_category));
cl::opt<bool> g_steps("steps",
                      cl::desc("also the time of each kind of step, and its share of the floor"),
                      cl::sub(g_bench), cl::cat(g_category));
cl::opt<std::string> g_r("r", cl::desc("repetitions (5)"), cl::value_desc("N"), cl::sub(g_bench),
                         cl::cat(g_category));
cl::opt<std::string> g_format("o", cl::desc("how to print (md)"), cl::value_desc("md|csv|json"),
                              cl::sub(g_bench), cl::cat(g_category));

#define KTX_SERVE(name, option, text, value)                                                 \
  cl::opt<std::string> name(option, cl::desc(text), cl::value_desc(value), cl::sub(g_serve), \
                            cl::cat(g_category));
KTX_SERVE(g_host, "host", "address to listen on (127.0.0.1)", "ADDRESS")
KTX_SERVE(g_port, "port", "port; 0: a free one (8080)", "N")
KTX_SERVE(g_name, "name", "the model's name (the plan's file name)", "NAME")
KTX_SERVE(g_max_queue, "max-queue", "requests that may wait; more get 429 (256)", "N")
KTX_SERVE(g_pooling, "pooling",
          "what embeddings are made of: the last token or the mean of all (last)", "last|mean")
KTX_SERVE(g_lookup, "lookup", "tokens to guess per step from the text itself; 0: off (0)", "N")
KTX_SERVE(g_request_seconds, "request-seconds", "time limit of an answer; 0: none (0)", "N")
KTX_SERVE(g_drain_seconds, "drain-seconds", "after SIGTERM, wait for answers (30)", "N")
KTX_SERVE(g_api_key_file, "api-key-file", "keys, one a line", "FILE")
KTX_SERVE(g_tls_cert, "tls-cert", "certificate chain (PEM); with --tls-key", "FILE")
KTX_SERVE(g_tls_key, "tls-key", "its key (PEM)", "FILE")
KTX_SERVE(g_max_body, "max-body", "largest body of a request (32M)", "SIZE")
KTX_SERVE(g_max_connections, "max-connections", "open at once (10000)", "N")
KTX_SERVE(g_slot_dir, "slot-dir", "where /slots saves and restores", "DIR")
KTX_SERVE(g_access_log, "access-log", "a line of JSON per request; -: stderr", "FILE")
KTX_SERVE(g_profile, "profile", "lines of JSON: the time of each step of the plan", "FILE")
KTX_SERVE(g_web_ui, "web-ui", "the page at / (on)", "on|off")
KTX_SERVE(g_config, "config", "options from a file, 'name = value' per line", "FILE")
#undef KTX_SERVE
cl::list<std::string> g_api_keys("api-key", cl::desc("clients must send it (none)"),
                                 cl::value_desc("KEY"), cl::sub(g_serve), cl::cat(g_category));
cl::list<std::string> g_cors("cors", cl::desc("pages that may call: https://site or * (none)"),
                             cl::value_desc("ORIGIN"), cl::sub(g_serve), cl::cat(g_category));
cl::list<std::string> g_allow_hosts("allow-host", cl::desc("more names of a loopback server"),
                                    cl::value_desc("NAME"), cl::sub(g_serve), cl::cat(g_category));

class Checker {
 public:
  void fail(const std::string& message) {
    llvm::errs() << "ktx-run: error: " << message << "\n";
    ok_ = false;
  }
  int64_t to_number(const std::string& text, const std::string& option, int64_t low, int64_t high) {
    const std::optional<int64_t> value = parse_whole(text, low, high);
    if (!value) {
      fail(fmt::format("{}{} takes whole numbers from {} to {}, not '{}'",
                       option.size() > 1 ? "--" : "-", option, low, high, text));
    }
    return value.value_or(low);
  }
  template <class T>
  void number(const cl::opt<std::string>& option, T& out, int64_t low, int64_t high) {
    if (option.getNumOccurrences() == 0) return;
    out = static_cast<T>(to_number(option, option.ArgStr.str(), low, high));
  }
  std::vector<int64_t> numbers(const cl::list<std::string>& option, int64_t low, int64_t high) {
    std::vector<int64_t> out;
    for (const std::string& text : option) {
      out.push_back(to_number(text, option.ArgStr.str(), low, high));
    }
    return out;
  }
  void real(const cl::opt<std::string>& option, double& out, double low, double high) {
    if (option.getNumOccurrences() == 0) return;
    if (llvm::StringRef(option).getAsDouble(out) || !(out >= low && out <= high)) {
      fail(fmt::format("--{} takes a number from {} to {}, not '{}'", option.ArgStr.str(), low,
                       high, std::string(option)));
    }
  }
  void bytes(const cl::opt<std::string>& option, int64_t& out) {
    if (option.getNumOccurrences() == 0) return;
    const std::optional<int64_t> size = parse_size(std::string(option));
    if (!size) {
      fail(fmt::format("--{} takes a size such as 512M or 8G, not '{}'", option.ArgStr.str(),
                       std::string(option)));
    }
    out = size.value_or(0);
  }
  std::string choice(const cl::opt<std::string>& option, std::vector<std::string> allowed) {
    const std::string value = option;
    if (option.getNumOccurrences() == 0) return "";
    if (std::find(allowed.begin(), allowed.end(), value) == allowed.end()) {
      fail(fmt::format("{}{} takes {}, not '{}'", option.ArgStr.size() > 1 ? "--" : "-",
                       option.ArgStr.str(), fmt::join(allowed, " or "), value));
    }
    return value;
  }
  bool ok() const { return ok_; }

 private:
  bool ok_ = true;
};

void read_engine(Options& options, Checker& check) {
  const std::vector<int64_t> threads = check.numbers(g_threads, 1, 1024);
  options.bench_threads = threads;
  if (!threads.empty()) options.engine.threads = static_cast<int>(threads.front());
  if (threads.size() > 1 && options.command != Command::Bench)
    check.fail("-t takes one number here");
  options.engine.precision = check.choice(g_precision, {"exact", "fast"});
  options.engine.pin = check.choice(g_pin, {"auto", "on", "off"});
  options.engine.kv_type = check.choice(g_kv_type, {"f32", "f16", "q8"});
  check.number(g_ctx, options.engine.ctx, 1, kMaxCtx);
  check.number(g_max_batch, options.engine.max_batch, 1, 4096);
  check.number(g_chunk, options.engine.chunk_tokens, 1, 32768);
  check.bytes(g_kv_budget, options.engine.kv_budget_bytes);
  options.engine.verify = g_verify;
  options.engine.huge_pages = g_huge_pages;
  options.engine.check_finite = g_check_finite;
}

void read_sampling(SamplingFlags& sampling, Checker& check) {
  check.real(g_temp, sampling.temperature, 0, 100);
  check.number(g_top_k, sampling.top_k, 0, 1 << 30);
  check.real(g_top_p, sampling.top_p, 0, 1);
  check.real(g_min_p, sampling.min_p, 0, 1);
  check.real(g_repetition, sampling.repetition_penalty, 0.01, 100);
  check.real(g_presence, sampling.presence_penalty, -100, 100);
  check.real(g_frequency, sampling.frequency_penalty, -100, 100);
  if (g_seed.getNumOccurrences()) {
    uint64_t seed = 0;
    if (llvm::StringRef(g_seed).getAsInteger(10, seed)) check.fail("--seed takes a whole number");
    sampling.seed = seed;
  }
}

// A pipe or a file that is not empty, but no terminal and not /dev/null.
bool text_on_standard_input() {
  struct stat info = {};
  if (fstat(STDIN_FILENO, &info) != 0) return false;
  return S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode) ||
         (S_ISREG(info.st_mode) && info.st_size > 0);
}

void read_limit(Options& options, Checker& check) {
  const std::vector<int64_t> n = check.numbers(g_n, 0, 1 << 30);
  if (n.size() > 1) check.fail("-n takes one number here");
  if (!n.empty()) options.max_tokens = n.front();
}

void read_generate(Options& options, Checker& check) {
  if (g_prompt.getNumOccurrences()) options.prompt = g_prompt;
  if (g_prompt_file.getNumOccurrences()) options.prompt_file = g_prompt_file;
  if (g_prompt_ids.getNumOccurrences()) {
    options.prompt_ids.emplace();
    for (int64_t id : check.numbers(g_prompt_ids, 0, INT32_MAX)) {
      options.prompt_ids->push_back(static_cast<int32_t>(id));
    }
  }
  const int sources =
      options.prompt.has_value() + options.prompt_file.has_value() + options.prompt_ids.has_value();
  if (sources == 0 && text_on_standard_input()) {
    options.prompt_file = "-";
  } else if (sources == 0) {
    check.fail("give one of --prompt, --prompt-file and --prompt-ids, or a text by a pipe");
  } else if (sources > 1) {
    check.fail("give one of --prompt, --prompt-file and --prompt-ids");
  }
  options.chat = g_as_chat;
  if (options.chat && options.prompt_ids) check.fail("--chat needs a text, not --prompt-ids");
  if (!options.chat && (g_system.getNumOccurrences() || g_template_vars.getNumOccurrences())) {
    check.fail("--system and --template-var are for the chat template: add --chat");
  }
  read_limit(options, check);
  check.number(g_logprobs, options.logprobs, 0, 1000);
  options.json = g_json;
  if (g_logprobs.getNumOccurrences() && !options.json) check.fail("--logprobs goes with --json");
}

// "*", "null" (pages of files), or what a browser sends as a page's origin: no path, no end "/".
bool is_origin(std::string_view text) {
  const size_t scheme = text.find("://");
  return text == "*" || text == "null" ||
         (scheme != text.npos && scheme > 0 && scheme + 3 < text.size() &&
          text.find_first_of("/ ,", scheme + 3) == text.npos);
}

void read_serve(ServeFlags& serve, Checker& check) {
  if (g_host.getNumOccurrences()) serve.host = g_host;
  check.number(g_port, serve.port, 0, 65535);
  serve.name = g_name;
  check.number(g_max_queue, serve.max_queue, 0, 1 << 20);
  check.number(g_lookup, serve.lookup, 0, 32);
  serve.mean_pooling = check.choice(g_pooling, {"last", "mean"}) == "mean";
  check.number(g_request_seconds, serve.request_seconds, 0, 1 << 30);
  check.number(g_drain_seconds, serve.drain_seconds, 0, 1 << 20);
  serve.api_key_file = g_api_key_file;
  serve.api_keys = std::vector<std::string>(g_api_keys.begin(), g_api_keys.end());
  serve.cors = std::vector<std::string>(g_cors.begin(), g_cors.end());
  for (const std::string& origin : serve.cors) {
    if (!is_origin(origin)) {
      check.fail(fmt::format("--cors takes https://site, without a path, or *, not '{}'",
                             printable(origin)));
    }
  }
  for (const std::string& key : serve.api_keys) {
    if (key.empty())
      check.fail("--api-key (KTX_API_KEY) is empty, and everyone could call the server");
  }
  serve.hosts = std::vector<std::string>(g_allow_hosts.begin(), g_allow_hosts.end());
  serve.tls_cert = g_tls_cert;
  serve.tls_key = g_tls_key;
  if (serve.tls_cert.empty() != serve.tls_key.empty()) {
    check.fail("--tls-cert and --tls-key belong together");
  }
  check.bytes(g_max_body, serve.max_body_bytes);
  check.number(g_max_connections, serve.max_connections, 1, 1 << 20);
  serve.slot_dir = g_slot_dir;
  serve.access_log = g_access_log;
  serve.profile = g_profile;
  serve.web_ui = check.choice(g_web_ui, {"on", "off"}) != "off";
}

bool only_own_flags(const std::vector<std::string>& args, Checker& check) {
  cl::SubCommand* used = &*cl::TopLevelSubCommand;
  for (cl::SubCommand* command : {&g_generate, &g_chat, &g_serve, &g_inspect, &g_bench}) {
    if (args.size() > 1 && command->getName() == args[1]) used = command;
  }
  const auto options = std::span(args).subspan(args.empty() ? 0 : 1);
  const ReadFlags read = read_flags("run", options, own_flags(*used));
  for (const std::string& message : read.mistakes) check.fail(message);
  if (check.ok() && read.words.size() > 2) {  // the command, its plan
    const char* prompt = used == &g_generate ? "; a prompt is given as --prompt TEXT" : "";
    check.fail(fmt::format("one plan is taken, and '{}' comes behind it{}",
                           printable(read.words[2]), prompt));
  }
  return check.ok();
}

// The first word that is no option names the command; LLVM would take a misspelt one
// for the plan.
bool names_command(int argc, char** argv, Checker& check) {
  if (argc < 2 || argv[1][0] == '-') return true;
  const std::string word = argv[1];
  std::vector<std::string> names;
  for (const cl::SubCommand* command : {&g_generate, &g_chat, &g_serve, &g_inspect, &g_bench}) {
    names.push_back(command->getName().str());
  }
  if (std::find(names.begin(), names.end(), word) != names.end()) return true;
  if (std::filesystem::exists(word)) {
    check.fail(fmt::format("no command given; try: ktx-run chat {}", word));
  } else {
    check.fail(fmt::format("no command '{}'{}\n  commands: {}", printable(word),
                           did_you_mean(word, names), fmt::join(names, ", ")));
  }
  return false;
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv) {
  cl::HideUnrelatedOptions(g_category, *cl::TopLevelSubCommand);
  for (cl::SubCommand* command : {&g_generate, &g_chat, &g_serve, &g_inspect, &g_bench}) {
    cl::HideUnrelatedOptions(g_category, *command);
  }
  watch_llvm_streams("ktx-run");
  cl::SetVersionPrinter([](llvm::raw_ostream& out) { out << "ktx-run " << KTX_VERSION << "\n"; });
  Checker check;
  if (!names_command(argc, argv, check)) return std::nullopt;
  const Result<std::vector<std::string>> args = add_serve_settings(argc, argv);
  if (!args) {
    check.fail(args.error().message);
    return std::nullopt;
  }
  if (!only_own_flags(*args, check)) return std::nullopt;
  std::vector<const char*> pointers;
  for (const std::string& arg : *args) pointers.push_back(arg.c_str());
  if (!cl::ParseCommandLineOptions(static_cast<int>(pointers.size()), pointers.data(), kOverview,
                                   &llvm::errs())) {
    return std::nullopt;
  }
  Options options;
  if (g_generate)
    options.command = Command::Generate;
  else if (g_chat)
    options.command = Command::Chat;
  else if (g_serve)
    options.command = Command::Serve;
  else if (g_inspect)
    options.command = Command::Inspect;
  else if (g_bench)
    options.command = Command::Bench;
  else {
    check.fail("no command given; try: ktx-run chat model.ktxplan, or ktx-run --help");
    return std::nullopt;
  }
  options.plan = g_plan;
  if (options.plan.empty()) {
    constexpr const char* kNames[] = {"generate", "chat", "serve", "inspect", "bench"};  // Command
    check.fail(fmt::format("no plan given; try: ktx-run {} model.ktxplan",
                           kNames[static_cast<size_t>(options.command)]));
  }
  read_engine(options, check);
  read_sampling(options.sampling, check);
  if (options.command == Command::Generate) read_generate(options, check);
  if (options.command == Command::Chat) {
    read_limit(options, check);
    options.drop_when_full = check.choice(g_on_full, {"stop", "drop"}) == "drop";
  }
  if (options.command == Command::Serve) read_serve(options.serve, check);
  options.system = g_system;
  auto template_vars = text::parse_template_vars(
      std::vector<std::string>(g_template_vars.begin(), g_template_vars.end()));
  if (!template_vars) check.fail("--template-var: " + template_vars.error().message);
  options.template_vars = template_vars.ok() ? template_vars.take() : nlohmann::ordered_json();
  options.stats = g_stats;
  options.verify = g_verify;
  options.export_gguf = g_export;
  if (options.command == Command::Inspect) options.json = g_json;
  if (options.command == Command::Bench) {
    options.bench_prompt = check.numbers(g_p, 0, 1 << 20);
    options.bench_generate = check.numbers(g_n, 0, 1 << 20);
    options.bench_depth = check.numbers(g_depth, 0, 1 << 20);
    options.bench_batch = check.numbers(g_batch, 1, 4096);
    options.bench_steps = g_steps;
    options.bench_kernels = g_kernels;
    check.number(g_r, options.repetitions, 1, 1000);
    const std::string format = check.choice(g_format, {"md", "csv", "json"});
    if (!format.empty()) options.format = format;
  }
  if (!check.ok()) return std::nullopt;
  return options;
}

}  // namespace ktx::tools
