#include "lib/passes/placement/chunk_tokens.h"

#include <gtest/gtest.h>

namespace ktx::passes {
namespace {

// A model whose routers choose top_k of so many experts.
int64_t chunk_of(int32_t experts, int32_t top_k, int64_t stream_tokens = 0) {
  ir::ModuleGraph graph;
  graph.modules.resize(2);
  RouterAttrs attrs;
  attrs.experts = experts;
  attrs.top_k = top_k;
  graph.modules[1].info = ir::RouterInfo{attrs};
  return chunk_tokens(graph, stream_tokens);
}

TEST(ChunkTokens, GrowWithTheExpertsThatShareThem) {
  EXPECT_EQ(chunk_tokens({}, 0), 512);
  EXPECT_EQ(chunk_of(8, 2), 512);     // Mixtral
  EXPECT_EQ(chunk_of(60, 4), 1024);   // Qwen1.5-MoE
  EXPECT_EQ(chunk_of(128, 8), 1024);  // Qwen3-30B-A3B
  EXPECT_EQ(chunk_of(256, 8), 1024);  // DeepSeek-V3: at most so many
  EXPECT_EQ(chunk_of(64, 8), 512);
}

TEST(ChunkTokens, AreManyWhereEachStepCopiesTheExperts) {
  EXPECT_EQ(chunk_of(128, 8, 256), 4096);
}

}  // namespace
}  // namespace ktx::passes
