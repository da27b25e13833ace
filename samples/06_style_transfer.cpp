// Sample 6: deployment. The style-transfer network, with its weights, is saved as a folder; everything after that works
// from the folder alone, without this program or the network's code:
//
//   build/samples/06_style_transfer --out style                      # style/saved: graph.json and weights.safetensors;
//                                                                    # style/picture.ppm
//   build/graven emit style/saved -o style/project --name stylize    # a standalone C++ project
//   cmake -S style/project -B style/project/build && cmake --build style/project/build -j2
//   style/project/build/stylize --data samples/pictures/launch_pad.png --output style/stylized.png    # a photograph
//   style/project/build/stylize --data style/picture.ppm --output style/stylized.png
//
// (A program that has Graven anyway runs the folder as nn::SavedGraph("style/saved").)
//
// --weights FILE takes the weights of PyTorch's fast_neural_style example (its .pth files converted to safetensors).
// Without them the weights are random, and the picture is turned into random textures rather than a style; the program
// says so. Height and width are symbols: one program takes any picture, PNG or PPM, with sides from 16 to N pixels
// (--size N, default 256, the sides of the made-up picture).
#include <graven/graven.h>

#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <string_view>

using namespace graven;

/// Pictures with channels from 0 to 1, f32[1,3,height,width], in and out: what emitted programs read from and write to
/// picture files.
struct Stylize : nn::Graph<Stylize> {
  models::TransformerNet network;

  explicit Stylize(models::TransformerNet trained) : network(child("network", trained)) {}

  Tensor build(Tensor picture) { return clamp(network(picture * 255), 0, 255) / 255; }
};

/// A freshly made network answers with values around 0, and pictures lie around 128: the last layer is moved there.
void show_something(models::TransformerNet& network) {
  const NoGradGuard no_grad;
  nn::Conv2d& last = network.deconv3.conv2d;
  last.weight.copy_(last.weight * 128);
  last.bias.fill_(128);
}

/// A sunset over hills, in PPM: `size` x `size` pixels.
void write_picture(const std::filesystem::path& path, std::int64_t size) {
  std::ofstream file(path, std::ios::binary);
  file << "P6\n" << size << " " << size << "\n255\n";
  const auto byte = [](double x) {
    return static_cast<char>(static_cast<unsigned char>(x < 0 ? 0 : x > 255 ? 255 : x));
  };
  for (std::int64_t i = 0; i < size; ++i)
    for (std::int64_t j = 0; j < size; ++j) {
      const double y = (static_cast<double>(i) + 0.5) / static_cast<double>(size),
                   x = (static_cast<double>(j) + 0.5) / static_cast<double>(size);
      const double far = 0.62 + 0.06 * std::sin(9 * x) + 0.02 * std::sin(31 * x),
                   near = 0.8 + 0.08 * std::sin(5 * x + 2) + 0.01 * std::sin(47 * x);
      double red = 90 + 240 * y, green = 60 + 130 * y, blue = 150 - 60 * y;
      if (const double sun = std::hypot(x - 0.68, y - 0.42); sun < 0.11) {
        red = 255, green = 230, blue = 140;
      } else {
        red += 60 * std::exp(-12 * (sun - 0.11)), green += 50 * std::exp(-12 * (sun - 0.11));
      }
      if (y > far) red = 70 + 60 * (y - far), green = 60 + 40 * std::sin(60 * (x + y)), blue = 110;
      if (y > near) red = 30 + 20 * std::sin(90 * x), green = 70 + 160 * (y - near), blue = 40;
      file.put(byte(red)).put(byte(green)).put(byte(blue));
    }
  file.close();
  if (!file) throw UserError(path.string() + ": cannot be written");
}

int main(int argc, char** argv) try {
  std::filesystem::path out = ".";
  std::string weights;
  std::int64_t size = 256, channels = 32;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    if (i + 1 == argc || (name != "--out" && name != "--weights" && name != "--size" && name != "--channels"))
      throw UserError("usage: 06_style_transfer [--out DIRECTORY] [--weights FILE] [--size N] [--channels N]");
    const std::string_view value = argv[i + 1];
    if (name == "--out") {
      out = value;
    } else if (name == "--weights") {
      weights = value;
    } else {
      std::int64_t& number = name == "--size" ? size : channels;
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
      if (error != std::errc() || end != value.data() + value.size() || number < 1 || number > 4096)
        throw UserError(std::string(name) + ": expected a number from 1 to 4096, found '" + std::string(value) + "'");
    }
  }
  if (size < 16) throw UserError("--size: expected 16 or more, found " + std::to_string(size));

  manual_seed(0);
  models::TransformerNet network({.channels = channels});
  if (weights.empty()) {
    std::cout << "No --weights: the network is random, and so is the style.\n";
    show_something(network);
  } else {
    // Old files have running statistics, which the network does not use: not strict; but nothing may be missing.
    const nn::LoadReport report = network.load_state_dict(nn::load(weights), false);
    if (!report.missing.empty()) throw UserError(weights + ": has no " + report.missing.front());
  }
  network.eval();

  Stylize graph(network);
  graph.compile(spec({1, 3, Dim("height", 16, size), Dim("width", 16, size)}, "picture"));
  std::filesystem::create_directories(out);
  graph.save((out / "saved").string());
  write_picture(out / "picture.ppm", size);
  std::cout << "saved " << (out / "saved").string() << " and " << (out / "picture.ppm").string() << "; next:\n"
            << "  graven emit " << (out / "saved").string() << " -o " << (out / "project").string()
            << " --name stylize\n";
  return 0;
} catch (const std::exception& e) {
  std::cerr << e.what() << "\n";
  return 2;
}
