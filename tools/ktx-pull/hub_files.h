// What a hub says of a model's files, and the choice among them.
//
//   HubListing listing = KTX_TRY(read_listing(json, "hf:a/b"));
//   const auto files = KTX_TRY(choose_files(listing, "Q4_K_M", "b", "hf:a/b"));   // one, or all
//   shards
//
// Safe for untrusted answers: names that would leave the model's folder are refused.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/support/result.h"
#include "tools/pulled_models.h"

namespace ktx::tools {

struct HubListing {
  std::string commit;
  std::vector<HubFile> ggufs;  // models, by name
};

// Reads the answer to GET /api/models/OWNER/NAME/revision/REVISION?blobs=true.
Result<HubListing> read_listing(std::string_view json, const std::string& model);

// By the end of the name, "-Q4_K_M.gguf" or "-Q4_K_M-00001-of-00002.gguf", in any case. Without a
// name Q4_K_M, or the only one. Where several fit, the one that has the repository's name before
// it: an address of a file means that one. Fails with the names that there are, of `model`.
Result<std::vector<HubFile>> choose_files(const HubListing& listing, const std::string& quant,
                                          const std::string& repository, const std::string& model);

uint64_t bytes_of(const std::vector<HubFile>& files);
// A line for each: path and size.
std::string list_text(const std::vector<HubFile>& files, std::string_view indent = "");

}  // namespace ktx::tools
