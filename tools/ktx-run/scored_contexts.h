// A text as perplexity and compare score it: cut into contexts of so many tokens, each of which
// begins anew, with BOS in place of its first token where the model asks for one. What is left over
// at the end is not scored. So does llama.cpp (tools/perplexity), token for token.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lib/runtime/engine/engine.h"
#include "lib/runtime/quality/logits_file.h"
#include "lib/support/result.h"
#include "lib/support/timer.h"
#include "lib/text/tokenizer/tokenizer.h"
#include "tools/ktx-run/options.h"
#include "tools/ktx-run/progress_line.h"

namespace ktx::tools {

inline constexpr int64_t kScoredContext = 512;

struct Contexts {
  int64_t context = 0;  // tokens of one
  int64_t count = 0;
  std::vector<int32_t> tokens;  // of all, as the text has them
  int32_t bos = -1;             // -1: the first token stays

  // The tokens of one that are computed: all but the last, whose next one is not known.
  std::vector<int32_t> computed(int64_t number) const;
  // The token behind a scored place.
  int32_t next(int64_t number, int64_t place) const {
    return tokens[static_cast<size_t>(number * context + runtime::first_scored(context) + place +
                                      1)];
  }
};

// The contexts of the text of -f. Fails if it is shorter than a context.
Result<Contexts> read_contexts(const Options& options, const text::Tokenizer& tokenizer);
// The contexts of a file of log-probabilities; its vocabulary must be the model's.
Result<Contexts> contexts_of(const Options& options, const runtime::LogitsFile& base,
                             const std::string& path, const text::Tokenizer& tokenizer,
                             int64_t vocabulary);

// For an engine that scores contexts of so many tokens: one sequence, rows for many places.
EngineFlags scoring_flags(const EngineFlags& flags, int64_t context);

// What Forward::Done is not. True: Ctrl-C ended it.
Result<bool> check_scored(runtime::Forward result);

// "perplexity: 12 of 114 contexts, 16.31 so far, 312 t/s".
class ContextProgress {
 public:
  ContextProgress(std::string command, const Contexts& contexts)
      : command_(std::move(command)), contexts_(contexts) {}
  void show(int64_t done, double perplexity);
  void erase() { line_.erase(); }

 private:
  std::string command_;
  const Contexts& contexts_;
  ProgressLine line_;
  Timer timer_;
};

}  // namespace ktx::tools
