// Reads fuzzer input as a file of a Hugging Face folder. A config.json must give a module graph or
// an error; a tokenizer that is accepted must cut a text into ids and put it together again.
//
//   cmake --preset fuzz && ninja -C build-fuzz fuzz_config
//   build-fuzz/tests/fuzz/fuzz_config FOUND
//
// First byte: which file; tools/dev/fuzz makes the first inputs of tests/models.
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "lib/arch/build_graph.h"
#include "lib/text/tokenizer/hf_tokenizer.h"
#include "lib/text/tokenizer/tokenizer.h"

namespace {

using namespace ktx;

void build(std::string_view text) {
  const auto config = input::HfConfig::parse(text, "config.json");
  if (!config) return;
  DiagSink diags;
  const auto graph = arch::build_graph(*config, diags);
  if (!graph && graph.error().message.empty()) std::abort();
  (void)render_diagnostics(diags, 0, true, true);
}

void cut(Result<text::TokenizerData> data) {
  if (!data) return;
  const auto tokenizer = text::Tokenizer::create(data.take());
  if (!tokenizer) return;
  const std::vector<int32_t> ids = tokenizer->encode("Hello, wörld! 12345 \n\t 你好 <s>x");
  for (const int32_t id : ids) {
    if (!tokenizer->contains(id)) std::abort();
  }
  (void)tokenizer->decode(ids);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::span<const uint8_t> file(data + 1, size - 1);
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  switch (data[0] % 3) {
    case 0:
      build(text);
      break;
    case 1:
      cut(text::parse_tokenizer_json(text));
      break;
    case 2:
      cut(text::parse_sentencepiece_model(std::as_bytes(file)));
      break;
  }
  return 0;
}
