// Log-probabilities of a model over a text, in the file of llama.cpp's --kl-divergence-base, which
// reads ours and whose files are read here.
//
//   "_logits_"                 8 bytes
//   uint32  context            tokens of a context
//   int32   vocabulary, contexts
//   int32   token[contexts * context]
//   for each context, for each of its scored places (from context / 2 to context - 2):
//     float  scale, least      ln p = scale * code + least
//     uint16 code[vocabulary], and one more where the vocabulary is odd
//
// A code spans what lies within 16 of the likeliest token; what is less likely has code 0.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lib/support/mapped_file.h"
#include "lib/support/result.h"
#include "lib/support/work_file.h"

namespace ktx::runtime {

// The places of a context that are scored: the first half is what the model knows of the text, and
// the last token has no next one.
constexpr int64_t first_scored(int64_t context) {
  return context / 2;
}
constexpr int64_t scored_places(int64_t context) {
  return context - 1 - context / 2;
}

struct LogitsHead {
  int64_t context = 0;
  int64_t vocabulary = 0;
  int64_t contexts = 0;
};

// Safe for untrusted files.
class LogitsFile {
 public:
  // Fails with "PATH: ..." where it is no such file, or not as long as its head says.
  static Result<LogitsFile> open(const std::string& path);

  const LogitsHead& head() const { return head_; }
  std::span<const int32_t> tokens() const { return tokens_; }
  // ln p of all tokens at a scored place; `out` has the size of the vocabulary. Fails on damaged
  // data.
  Status read(int64_t context, int64_t place, std::span<float> out) const;
  Status check() const { return file_.check(); }

 private:
  explicit LogitsFile(MappedFile file) : file_(std::move(file)) {}

  MappedFile file_;
  LogitsHead head_;
  std::vector<int32_t> tokens_;
};

// Writes one, which appears as a whole at the end.
class LogitsWriter {
 public:
  // `tokens`: of all contexts.
  static Result<LogitsWriter> open(const std::string& path, const LogitsHead& head,
                                   std::span<const int32_t> tokens);
  // From any thread. Fails where a logit is NaN or +infinity, or the disk is full.
  Status write(int64_t context, int64_t place, std::span<const float> logits);
  Status finish();

 private:
  LogitsWriter(WorkFile file, const LogitsHead& head) : file_(std::move(file)), head_(head) {}

  WorkFile file_;
  LogitsHead head_;
};

}  // namespace ktx::runtime
