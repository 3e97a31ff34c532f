// Files of images for a model at a terminal.
#pragma once

#include <memory>
#include <string>

#include "lib/images/decoder_process.h"
#include "lib/support/result.h"
#include "lib/vision/image_prompt.h"
#include "lib/vision/viewer.h"
#include "tools/ktx-run/loaded_model.h"

namespace ktx::tools {

// This program again, as the process that decodes.
Result<std::shared_ptr<images::DecoderProcess>> start_decoder();

// Computes on the model's threads: the caller waits for it. Messages begin with the plan's path.
Result<std::unique_ptr<vision::Viewer>> open_viewer(const LoadedModel& model,
                                                    const std::string& plan,
                                                    const EngineFlags& flags);

}  // namespace ktx::tools
