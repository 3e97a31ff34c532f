#include "tools/ktx-run/run_commands.h"

#include "lib/plan/most_chunk.h"
#include "tools/option_table.h"

namespace ktx::tools {
namespace {

constexpr uint32_t kGenerate = 1u << static_cast<int>(Command::Generate);
constexpr uint32_t kChat = 1u << static_cast<int>(Command::Chat);
constexpr uint32_t kServe = 1u << static_cast<int>(Command::Serve);
constexpr uint32_t kInspect = 1u << static_cast<int>(Command::Inspect);
constexpr uint32_t kBench = 1u << static_cast<int>(Command::Bench);
constexpr uint32_t kPerplexity = 1u << static_cast<int>(Command::Perplexity);
constexpr uint32_t kScore = 1u << static_cast<int>(Command::Score);
constexpr uint32_t kCompare = 1u << static_cast<int>(Command::Compare);
constexpr uint32_t kSelftest = 1u << static_cast<int>(Command::Selftest);
constexpr uint32_t kDoctor = 1u << static_cast<int>(Command::Doctor);
constexpr uint32_t kProbe = 1u << static_cast<int>(Command::Probe);
constexpr uint32_t kPlans = 1u << static_cast<int>(Command::Plans);
constexpr uint32_t kPull = 1u << static_cast<int>(Command::Pull);
constexpr uint32_t kInteractive = kGenerate | kChat;
constexpr uint32_t kSamples = kInteractive | kServe;
constexpr uint32_t kRuns = kSamples | kBench;
constexpr uint32_t kContexts = kPerplexity | kCompare;
constexpr uint32_t kScores = kContexts | kScore;
constexpr uint32_t kOpens = kRuns | kScores | kSelftest;
constexpr uint32_t kTakesModel = kOpens | kInspect | kDoctor;

constexpr OptionRow<Options> kRows[] = {
#define KTX_OPTION(name, value, commands, group, reader, field, help) \
  {{name, value, commands, group, decltype(reader)::kForm, help},     \
   [](Options& options, const Given& given, Mistakes& mistakes) {     \
     read(reader, given, options.field, mistakes);                    \
   }},
#include "tools/ktx-run/run_options.def"
};
constexpr OptionTable kOptions(kRows);

// In the order of Command.
constexpr CommandInfo kCommands[] = {
    {"generate", "MODEL", "answer one prompt",
     "  ktx-run generate model.ktxplan --chat --prompt \"Tell me a story.\" -n 100\n"
     "  ktx-run generate model.ktxplan --prompt-file prompt.txt --ctx 32k\n"
     "  ktx-run generate model.ktxplan --prompt-ids 1,2,3 --temp 0 --json --logprobs 5\n",
     ""},
    {"chat", "MODEL", "talk to the model",
     "  ktx-run chat model.ktxplan\n"
     "  ktx-run chat model.ktxplan --system \"You are brief.\" --temp 0.7\n"
     "  ktx-run chat model.ktxplan --template-var enable_thinking=false\n",
     "/help in a conversation lists its commands.\n"},
    {"serve", "MODEL|FOLDER...",
     "answer over HTTP: OpenAI, Ollama and Anthropic clients, a web page",
     "  ktx-run serve model.ktxplan --port 8080 --max-batch 8\n"
     "  ktx-run serve models/ --sleep-idle-seconds 600\n"
     "  ktx-run serve model.ktxplan --host 0.0.0.0 --api-key-file keys.txt\n",
     "Every option can also be set in the file given by --config (ctx = 32k) or in the\n"
     "environment (KTX_CTX=32k; KTX_THREADS for -t); the command line wins.\n"},
    {"inspect", "MODEL", "show what a plan holds",
     "  ktx-run inspect model.ktxplan --verify\n"
     "  ktx-run inspect model.ktxplan --export-gguf copy.gguf\n"
     "  ktx-run inspect --diff f16.ktxplan q4.ktxplan\n"
     "  ktx-run inspect model.ktxplan --provenance --cyclonedx bom.json\n"
     "  ktx-run inspect model.ktxplan --root > model.ktxplan.root\n",
     ""},
    {"bench", "MODEL", "measure prompt and generation speed",
     "  ktx-run bench model.ktxplan\n"
     "  ktx-run bench model.ktxplan -p 512,1k -n 64 -d 0,2k -r 3 -t 8 -o md\n",
     ""},
    {"perplexity", "MODEL", "how well the model predicts a text, and how far it is from another",
     "  ktx-run perplexity model.ktxplan -f text.txt\n"
     "  ktx-run perplexity f16.ktxplan -f text.txt --save-logits base.logits\n"
     "  ktx-run perplexity q4.ktxplan --base base.logits\n",
     "The text is cut into contexts; the second half of each is scored, as in\n"
     "llama.cpp's perplexity program.\n"},
    {"score", "MODEL", "log-probabilities of given texts, as lines of JSON",
     "  ktx-run score model.ktxplan -f texts.jsonl > scores.jsonl\n"
     "  echo '{\"prompt\": \"2 + 2 =\", \"text\": \" 4\"}' | ktx-run score model.ktxplan -f -\n",
     "Each line has a text, or its ids, and optionally a prompt, or prompt_ids.\n"},
    {"compare", "MODEL MODEL", "how far the second plan's answers are from the first one's",
     "  ktx-run compare f16.ktxplan q4.ktxplan -f text.txt --layers\n"
     "  ktx-run compare q4.ktxplan q4.ktxplan -f text.txt --base-precision exact\n",
     "Both are plans of models with the same vocabulary.\n"},
    {"selftest", "MODEL", "check that this machine computes the plan's answers correctly",
     "  ktx-run selftest model.ktxplan\n"
     "  ktx-run selftest model.ktxplan --seconds 600 --json\n",
     "The plan must have prompts with answers from the source weights (ktx-compile\n"
     "--selftest N). A failure names the weight, step or layer that is wrong.\n"
     "Exit status: 1 when it fails.\n"},
    {"doctor", "[MODEL]", "report what this machine can run, and what is missing",
     "  ktx-run doctor\n"
     "  ktx-run doctor model.ktxplan --json\n",
     "With a plan, also whether it opens here with its defaults and passes its\n"
     "self-test, if it has one.\n"
     "Exit status: 1 when something cannot run.\n"},
    {"probe", "", "measure this machine, for ktx-compile --target",
     "  ktx-run probe\n"
     "  ktx-run probe -o machine.yaml\n"
     "  mpirun -n 4 ktx-run probe -o lab.yaml\n",
     "Placement and predictions of `ktx-compile --target machine.yaml` use the rates.\n"
     "Takes a second or two; a busy machine gives low figures.\n"},
    {"plans", "[rm NAME...]", "list what was compiled at first starts, and remove some",
     "  ktx-run plans\n"
     "  ktx-run plans rm model\n"
     "  ktx-run plans --keep-below 200GB\n",
     "A GGUF that is run is compiled into ~/.cache/ktx (or the folder of KTX_CACHE),\n"
     "and the next start takes the plan from there. A removed one is compiled again.\n"},
    {"pull", "hf:OWNER/NAME[:QUANT]", "fetch a GGUF from a hub, or what has changed of it",
     "  ktx-run pull hf:ggml-org/gemma-3-1b-it-GGUF:Q4_K_M\n"
     "  ktx-run pull hf:ggml-org/gemma-3-1b-it-GGUF --list\n",
     "Prints where the file is. `ktx-run chat hf:...` fetches what is not there yet.\n"
     "HF_ENDPOINT names another hub; HF_TOKEN is sent to it. ktx-pull is the program\n"
     "that does this.\n"},
};

constexpr Tool kTool = {
    "ktx-run",
    "run",
    kCommands,
    kOptions.infos,
    "maps a plan and runs it",
    "  ktx-run chat model.gguf\n"
    "  ktx-run chat model.ktxplan --system \"You are brief.\" --temp 0.7\n"
    "  ktx-run generate model.ktxplan --chat --prompt \"Tell me a story.\" -n 100\n"
    "  ktx-run serve model.ktxplan --port 8080 --max-batch 8\n"
    "  ktx-run inspect model.ktxplan --verify\n"
    "  ktx-run bench model.ktxplan -p 512 -n 128 -r 5 -t 8 -o md\n"
    "  ktx-run perplexity model.ktxplan -f text.txt\n",
    "MODEL is a plan (ktx-compile model.gguf -o model.ktxplan), or a GGUF (of shards\n"
    "the first), which is compiled at its first start and kept (`ktx-run plans`), or\n"
    "hf:OWNER/NAME[:QUANT], a GGUF of a hub, which is fetched.\n"
    "`ktx-run help COMMAND` lists the options of a command.\n"
    "Exit status: 0 done, 1 failed, 2 wrong usage.\n",
};

}  // namespace

const Tool& ktx_run_tool() {
  return kTool;
}

void set_option(Options& options, const Given& given, Mistakes& mistakes) {
  kOptions.set[given.option](options, given, mistakes);
}

std::string_view command_name(Command command) {
  return kCommands[static_cast<size_t>(command)].name;
}

}  // namespace ktx::tools
