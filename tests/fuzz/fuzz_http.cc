// Sends fuzzer input as the body of a request to every endpoint, with a real (small) model: the
// server must answer. The first byte chooses the endpoint.
//
//   KTX_FUZZ_PLAN=qwen3moe.ktxplan build-fuzz/tests/fuzz/fuzz_http tests/fuzz/corpus/http
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "lib/server/server.h"

namespace {

using namespace ktx;

const char* const kPaths[] = {"/v1/chat/completions",
                              "/v1/completions",
                              "/v1/responses",
                              "/v1/messages",
                              "/api/chat",
                              "/api/generate",
                              "/api/show",
                              "/tokenize",
                              "/detokenize",
                              "/apply-template",
                              "/slots/0",
                              "/v1/embeddings",
                              "/api/embed",
                              "/api/embeddings"};

// The client that never waits: answers are cancelled at once.
class NoReply final : public server::HttpReply {
 public:
  void send(int status, std::string_view, std::string, const server::HttpHeaders&) override {
    if (status < 200 || status > 599 || status == 500) __builtin_trap();
  }
  void begin(int, std::string_view, const server::HttpHeaders&) override {}
  void write(std::string) override {}
  void end() override {}
  void on_gone(std::function<void()> call) override { call(); }
  bool begun() const override { return false; }
};

server::Server& the_server() {
  static server::Server* server = [] {
    const char* plan = std::getenv("KTX_FUZZ_PLAN");
    if (plan == nullptr) {
      std::fprintf(stderr, "set KTX_FUZZ_PLAN to a small plan\n");
      std::exit(1);
    }
    auto model = std::make_shared<server::ServedModel>();
    runtime::EngineOptions options;
    options.threads = 1;
    options.ctx = 512;
    options.max_batch = 4;
    auto engine = runtime::Engine::open(plan, options);
    if (!engine) __builtin_trap();
    model->engine = engine.take();
    if (!server::complete_model(*model, plan)) __builtin_trap();
    model->id = "fuzz";
    model->scheduler =
        std::make_unique<runtime::BatchScheduler>(*model->engine, runtime::SchedulerOptions());
    auto* out = new server::Server(server::ServerOptions{});
    out->set_model(model);
    return out;
  }();
  return *server;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  server::HttpRequest request;
  request.method = "POST";
  request.path = kPaths[data[0] % std::size(kPaths)];
  request.query = "action=erase";
  request.body.assign(reinterpret_cast<const char*>(data) + 1, size - 1);
  the_server().handle(request, std::make_shared<NoReply>());
  return 0;
}
