#include "lib/passes/make_self_test.h"

#include <algorithm>
#include <cmath>

#include "lib/reference/interpreter.h"
#include "lib/support/thread_count.h"
#include "lib/support/thread_pool.h"

namespace ktx::passes {
namespace {

plan::SelfTestStream stream_of(int32_t layer, std::span<const float> x) {
  double squares = 0;
  for (const float value : x) squares += double{value} * value;
  return {layer, std::sqrt(squares), plan::sketch_of(x)};
}

}  // namespace

Result<plan::SelfTest> make_self_test(const ir::ModuleGraph& graph, const input::GgufFile& gguf,
                                      std::span<const std::vector<int32_t>> prompts, int threads,
                                      const std::function<void(uint64_t, uint64_t)>& progress) {
  ThreadPool pool(thread_count(threads));
  reference::Interpreter model = KTX_TRY(reference::Interpreter::make(graph, gguf, &pool));
  uint64_t done = 0, total = 0;
  for (const std::vector<int32_t>& tokens : prompts) total += tokens.size();
  plan::SelfTest test;
  for (const std::vector<int32_t>& tokens : prompts) {
    plan::SelfTestPrompt& prompt = test.prompts.emplace_back();
    prompt.tokens = tokens;
    model.reset();
    for (const int32_t token : tokens) {
      prompt.answers.push_back(plan::answer_of(model.next(token)));
      progress(++done, total);
    }
    const auto& streams = model.streams();
    for (size_t i = 0; i < streams.size(); ++i) {
      prompt.streams.push_back(stream_of(static_cast<int32_t>(i) - 1, streams[i]));
    }
  }
  return test;
}

}  // namespace ktx::passes
