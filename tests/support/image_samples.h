// Small files of images, and patterns.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lib/images/image.h"

namespace ktx::testing {

inline std::string from_base64(std::string_view text) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(kDigits.find(c));
    if ((count += 6) < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xff);
  }
  return bytes;
}

// Written by Pillow 13; turned: by EXIF.
struct ImageSample {
  const char* name;
  int64_t width, height;
  const char* digest;  // of its pixels: the first digits of their SHA-256
  const char* base64;
};
inline const ImageSample kImageSamples[] = {
    {"rgb", 7, 5, "17e3756fe7167a2e",
     "iVBORw0KGgoAAAANSUhEUgAAAAcAAAAFCAIAAAAG+GGPAAAAV0lEQVR42kXIORKAMAgAQJ2QMEBOFK8UTj7i"
     "/59lYeGWO0/345wjolKKmfXexxiA2QCAmLlW0S0uV1o7YDbvPYlwa6L7vyEEipGbih7/IiKlxG0RPb99AWjL"
     "BnT6Yo4JAAAAAElFTkSuQmCC"},
    {"alpha", 5, 4, "1c683251322573c5",
     "iVBORw0KGgoAAAANSUhEUgAAAAUAAAAECAYAAABGM/VAAAAAT0lEQVR42gXB2wnAIAwAwJY8JIkYDUT9ELpJ"
     "N+n+a/Tuvp73AwAQEXF3z8zE0vIgIoqqau/dYk4sLQ8RkZiZjjEs1sLS8jAzS61VR4TF3j/OuASr0T/tIQAA"
     "AABJRU5ErkJggg=="},
    {"grey", 6, 3, "740edf5eff20efb6",
     "iVBORw0KGgoAAAANSUhEUgAAAAYAAAADCAAAAACVaiEnAAAAHUlEQVR42mNkYObkF5VmYWfh5OLmYWFn5eTi"
     "5gEAB/kAwFWf5FgAAAAASUVORK5CYII="},
    {"one bit", 9, 3, "3f314800b8861443",
     "iVBORw0KGgoAAAANSUhEUgAAAAkAAAADAQAAAABpcRjbAAAAEUlEQVR42mNkrmViYGBiYAAAA6cAhlorFXAA"
     "AAAASUVORK5CYII="},
    {"palette", 7, 5, "641139293f0953d9",
     "iVBORw0KGgoAAAANSUhEUgAAAAcAAAAFBAMAAAB7tOvrAAAAD1BMVEWFuMBfjr0+bp4hT34ML1PM19hHAAAA"
     "IklEQVR42mN0YXh3j4nh/4cPTP8//Gdg+vD/AwMTw4f/DACgWgy1Y4z6VwAAAABJRU5ErkJggg=="},
    {"jpeg", 7, 5, "79c109a48b47e95c",
     "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDABQODxIPDRQSEBIXFRQYHjIhHhwcHj0sLiQySUBMS0dARkVQWnNi"
     "UFVtVkVGZIhlbXd7gYKBTmCNl4x9lnN+gXz/2wBDARUXFx4aHjshITt8U0ZTfHx8fHx8fHx8fHx8fHx8fHx8"
     "fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHz/wAARCAAFAAcDASIAAhEBAxEB/8QAFQABAQAAAAAA"
     "AAAAAAAAAAAAAAP/xAAbEAACAQUAAAAAAAAAAAAAAAAAAQIDBAURIf/EABQBAQAAAAAAAAAAAAAAAAAAAAT/"
     "xAAbEQABBQEBAAAAAAAAAAAAAAABAAIDBBEh0f/aAAwDAQACEQMRAD8Ajh7WmpNtb4AA16xJFIGsODPUdvQv"
     "/9k="},
    {"progressive", 7, 5, "79c109a48b47e95c",
     "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDABQODxIPDRQSEBIXFRQYHjIhHhwcHj0sLiQySUBMS0dARkVQWnNi"
     "UFVtVkVGZIhlbXd7gYKBTmCNl4x9lnN+gXz/2wBDARUXFx4aHjshITt8U0ZTfHx8fHx8fHx8fHx8fHx8fHx8"
     "fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHz/wgARCAAFAAcDASIAAhEBAxEB/8QAFQABAQAAAAAA"
     "AAAAAAAAAAAAAAL/xAAUAQEAAAAAAAAAAAAAAAAAAAAD/9oADAMBAAIQAxAAAAGAR//EABcQAAMBAAAAAAAA"
     "AAAAAAAAAAABAgP/2gAIAQEAAQUCxlH/xAAVEQEBAAAAAAAAAAAAAAAAAAAAAf/aAAgBAwEBPwGP/8QAGBEA"
     "AgMAAAAAAAAAAAAAAAAAAgMAARH/2gAIAQIBAT8BewhLKn//xAAUEAEAAAAAAAAAAAAAAAAAAAAA/9oACAEB"
     "AAY/An//xAAVEAEBAAAAAAAAAAAAAAAAAAAAEf/aAAgBAQABPyGp/9oADAMBAAIAAwAAABAL/8QAFhEAAwAA"
     "AAAAAAAAAAAAAAAAAAEh/9oACAEDAQE/EKR//8QAFxEAAwEAAAAAAAAAAAAAAAAAAAER0f/aAAgBAgEBPxBC"
     "bFNP/8QAFxABAAMAAAAAAAAAAAAAAAAAAQARIf/aAAgBAQABPxACUvJ//9k="},
    {"jpeg grey", 6, 3, "224a2fbad90b4086",
     "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDABQODxIPDRQSEBIXFRQYHjIhHhwcHj0sLiQySUBMS0dARkVQWnNi"
     "UFVtVkVGZIhlbXd7gYKBTmCNl4x9lnN+gXz/wAALCAADAAYBAREA/8QAFAABAAAAAAAAAAAAAAAAAAAABf/E"
     "ABkQAAEFAAAAAAAAAAAAAAAAAAIABREhQf/aAAgBAQAAPwAJsAYKsX//2Q=="},
    {"cmyk", 5, 4, "722c660da9cc5b98",
     "/9j/7gAOQWRvYmUAZAAAAAAA/9sAQwAUDg8SDw0UEhASFxUUGB4yIR4cHB49LC4kMklATEtHQEZFUFpzYlBV"
     "bVZFRmSIZW13e4GCgU5gjZeMfZZzfoF8/8AAFAgABAAFBEMRAE0RAFkRAEsRAP/EABYAAQEBAAAAAAAAAAAA"
     "AAAAAAUDBP/EABoQAAMBAQEBAAAAAAAAAAAAAAEDBAAhIgL/2gAOBEMATQBZAEsAAD8Aetb9Bg7tltDAwd0L"
     "bHBg9YW2+gMHvf/Z"},
    {"turned", 5, 7, "6eb1df5e2095e0da",
     "/9j/4AAQSkZJRgABAQAAAQABAAD/4QAiRXhpZgAATU0AKgAAAAgAAQESAAMAAAABAAYAAAAAAAD/2wBDABQO"
     "DxIPDRQSEBIXFRQYHjIhHhwcHj0sLiQySUBMS0dARkVQWnNiUFVtVkVGZIhlbXd7gYKBTmCNl4x9lnN+gXz/"
     "2wBDARUXFx4aHjshITt8U0ZTfHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8"
     "fHx8fHz/wAARCAAFAAcDASIAAhEBAxEB/8QAFQABAQAAAAAAAAAAAAAAAAAAAAP/xAAbEAACAQUAAAAAAAAA"
     "AAAAAAAAAQIDBAURIf/EABQBAQAAAAAAAAAAAAAAAAAAAAT/xAAbEQABBQEBAAAAAAAAAAAAAAABAAIDBBEh"
     "0f/aAAwDAQACEQMRAD8Ajh7WmpNtb4AA16xJFIGsODPUdvQv/9k="},
    {"palette with clear colors", 5, 3, "98fe370c10a6f377",
     "iVBORw0KGgoAAAANSUhEUgAAAAUAAAADAgMAAAAmWC1rAAAACVBMVEUKyB76BFoAAP9A1ES7AAAAA3RSTlP/WgAE"
     "ukXtAAAAEUlEQVR42mOU0GBoY2CWCwAABR0BOb/pFJ0AAAAASUVORK5CYII="},
    {"one clear color", 4, 3, "43206c0da46f45f7",
     "iVBORw0KGgoAAAANSUhEUgAAAAQAAAADCAIAAAA7ljmRAAAABnRSTlMAAQACAAPJS6v1AAAAMElEQVR42mNgZGIW"
     "+cao8ZaJkYmZIeA2S8olVkYm5p4D7AwLtnMwMjGfWMp1Zw43AK6aClFTcHcYAAAAAElFTkSuQmCC"},
    {"grey and alpha", 4, 3, "c9cfdd3c688333d6",
     "iVBORw0KGgoAAAANSUhEUgAAAAQAAAADCAQAAAAe/WZNAAAAFklEQVR42mNk+C/yWuS1yGuWgDVoDACdFQv4d52X"
     "kwAAAABJRU5ErkJggg=="},
    {"webp", 7, 5, "30e2f4003108ca2b",
     "UklGRnAAAABXRUJQVlA4IGQAAAAwAgCdASoHAAUAAUAmJbACdLoB+AADIQb7gAD++qJ/Z6q6rNSZyVRhtef3/x"
     "fLVE/f/+P+2Aefs0Q+T7/4dgLf+bLxUj/tH/Y3/8cx//3X+4P4PP3uCv3+/g4277/uLZ7oMAAA"},
    {"webp lossless, alpha", 5, 4, "862955dfebc6d7ab",
     "UklGRjIAAABXRUJQVlA4TCYAAAAvBMAAELkyRPQ/dhHR/zAQZNvM6f56Z9imZBYEAilskAOiqwGpDw=="},
    {"webp turned", 4, 6, "6b461c4874299d93",
     "UklGRp4AAABXRUJQVlA4WAoAAAAIAAAABQAAAwAAVlA4IF4AAADwAQCdASoGAAQAAMASJbACdAE0+8H3+gAA/v"
     "7B9v/0FVeqdOOREo9exgi8z/5FZXJ5s5qnyztYL5/tnSnfz5n/3/4D/Cd+fth1R//0Jr7v/wRW/4N2P/eTL1+0"
     "ssAARVhJRhoAAABNTQAqAAAACAABARIAAwAAAAEABgAAAAAAAA=="}};

// An image of any size; make_image_rows.py makes the same.
inline images::Image image_pattern(int64_t width, int64_t height) {
  images::Image image{width, height, {}};
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      for (int64_t c = 0; c < 3; ++c) {
        image.rgb.push_back(static_cast<uint8_t>(x * x * 3 + y * 7 * (c + 1) + x * y + 31 * c));
      }
    }
  }
  return image;
}

}  // namespace ktx::testing
