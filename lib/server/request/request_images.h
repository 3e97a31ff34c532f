// The images of a request, as they were found in its messages: their files, and a mark for each in
// the text of its message.
//
//   RequestImages images;
//   KTX_TRY(images.add(part, "messages[0].content[1]", said.text));   // appends the mark
//   ...                                        // messages become others: texts are joined
//   std::vector<size_t> shown = images.take_marks(messages);   // contents become lists of parts
//
// A mark has a random number, so that no client can write one. White space and the like are not
// changed by what is done with messages.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "lib/server/http/json_fields.h"

namespace ktx::server {

inline constexpr size_t kMaxImages = 64;  // of a request

// Whether a request could have some, by its text as it came. True also where a message has such a
// word in quotes, or has escaped letters.
bool may_have_images(std::string_view body);

class RequestImages {
 public:
  struct File {
    std::string bytes;
    std::string where;  // in the request
  };

  RequestImages();

  // The image of a part, in any protocol's form: an image_url or a source with a data: URL or
  // base64. What is not in the request is refused: nothing is fetched.
  ApiStatus add(const Json& part, const std::string& where, std::string& text);
  // One that stands alone, in base64 or as a data: URL.
  ApiStatus add_data(std::string_view data, const std::string& where, std::string& text);

  // Contents with marks become lists of parts, as chat templates read them: {"type": "text"} and
  // {"type": "image"}. The result: which of files() stand there, in their order.
  std::vector<size_t> take_marks(Json& messages) const;
  const std::vector<File>& files() const { return files_; }

 private:
  std::string mark_;  // what all marks begin with
  std::vector<File> files_;
};

}  // namespace ktx::server
