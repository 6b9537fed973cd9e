#include "partita/model/operator.hpp"

#include <typeinfo>

namespace partita {

LayoutRequest LayoutRequest::on(const Grid& grid) const {
  LayoutRequest request = *this;
  for (auto& layout : request.arriving) layout = layout.on(grid);
  for (auto& layout : request.input)
    if (layout) layout = layout->on(grid);
  request.output = output.on(grid);
  if (weights) request.weights = weights->on(grid);
  return request;
}

OperatorLayouts OperatorLayouts::on(const Grid& grid) const {
  OperatorLayouts layouts = *this;
  for (auto* all : {&layouts.x, &layouts.dx, &layouts.w, &layouts.dw})
    for (auto& layout : *all) layout = layout.on(grid);
  layouts.y = y.on(grid);
  if (x_halo) layouts.x_halo = x_halo->on(grid);
  if (dy_halo) layouts.dy_halo = dy_halo->on(grid);
  if (ring) layouts.ring = ring->on(grid);
  for (auto& collective : layouts.collectives) collective.layout = collective.layout.on(grid);
  for (auto& product : layouts.products) product = product.on(grid);
  return layouts;
}

bool equal_operators(const Operator& a, const Operator& b) {
  return &a == &b || (typeid(a) == typeid(b) && a.kind() == b.kind() && a.describe() == b.describe());
}

std::vector<std::string> named_algorithms(const std::string& text) {
  std::vector<std::string> names;
  std::size_t begin = 0, end = 0;
  do {
    end = text.find('/', begin);
    names.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  } while (end != std::string::npos);
  return names;
}

}  // namespace partita
