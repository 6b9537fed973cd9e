// Layouts: which part of a tensor each rank of a grid owns. All of Partita uses this notation. The program runs in one
// process, since layouts can be examined without ranks.
//
// $ build/examples/02_layout
// N@data C H@y on "data=2 y=2 x=2" of N=5 C=3 H=8
//   sharded over (data,y), partial over (), replicated over (x)
//   rank 0 owns [0,3)x[0,3)x[0,4)
//   rank 1 owns [0,3)x[0,3)x[0,4)
//   rank 2 owns [0,3)x[0,3)x[4,8)
//   rank 3 owns [0,3)x[0,3)x[4,8)
//   rank 4 owns [3,5)x[0,3)x[0,4)
//   rank 5 owns [3,5)x[0,3)x[0,4)
//   rank 6 owns [3,5)x[0,3)x[4,8)
//   rank 7 owns [3,5)x[0,3)x[4,8)
// C H@(y,x) sum@data on "data=2 y=2 x=2" of C=3 H=10
//   sharded over (y,x), partial over (data), replicated over ()
//   rank 0 owns [0,3)x[0,3)
//   rank 1 owns [0,3)x[3,5)
//   rank 2 owns [0,3)x[5,8)
//   rank 3 owns [0,3)x[8,10)
//   rank 4 owns [0,3)x[0,3)
//   rank 5 owns [0,3)x[3,5)
//   rank 6 owns [0,3)x[5,8)
//   rank 7 owns [0,3)x[8,10)
// H@(data,y,x) W on "data=2 y=2 x=2" of H=5 W=4
//   sharded over (data,y,x), partial over (), replicated over ()
//   rank 0 owns [0,1)x[0,4)
//   rank 1 owns [1,2)x[0,4)
//   rank 2 owns [2,3)x[0,4)
//   rank 3 owns [3,3)x[0,4), which is empty
//   rank 4 owns [3,4)x[0,4)
//   rank 5 owns [4,4)x[0,4), which is empty
//   rank 6 owns [4,5)x[0,4)
//   rank 7 owns [5,5)x[0,4), which is empty
// N H@y W@x
//         W  [0,4)  [4,7)
// H [0,5)     0,4    1,5
// H [5,9)     2,6    3,7
// pooled to N=5 H=4 W=3: rank 3 owns [0,5)x[2,4)x[2,3)
// a value N@data C sum@y has a gradient N@data C
#include <partita/layouts/picture.hpp>
#include <partita/partita.hpp>

using namespace partita;

namespace {

/// Prints a layout and the box of every rank in global coordinates.
void show(const char* notation, const Shape& shape, const Grid& grid) {
  const Layout layout = Layout::parse(notation, shape, grid);
  fmt::print("{} on \"{}\" of {}\n", layout.print(), grid.print(), shape.print());
  fmt::print("  sharded over {}, partial over {}, replicated over {}\n", grid.print(layout.sharding()),
             grid.print(layout.partial()), grid.print(layout.replicated()));
  for (int rank = 0; rank < grid.size(); ++rank) {
    const Box owned = layout.owned(rank);
    fmt::print("  rank {} owns {}{}\n", rank, owned.print(), owned.empty() ? ", which is empty" : "");
  }
}

}  // namespace

int main() {
  // Eight ranks on a grid with three axes. The last axis varies fastest: rank 5 is data=1 y=0 x=1.
  const Grid grid = Grid::parse("data=2 y=2 x=2");

  // Blocks are balanced, and the first blocks get the remainder: 5 samples are divided into 3 + 2. Nothing is sharded
  // over x, so ranks that differ only in x are replicas.
  show("N@data H@y", Shape{{'N', 5}, {'C', 3}, {'H', 8}}, grid);

  // H is sharded over y first, then each block over x: 10 rows are divided into 5 + 5, and these into 3 + 2. The values
  // are a pending sum: ranks that differ only in data hold parts of the sum.
  show("H@(y,x) sum@data", Shape{{'C', 3}, {'H', 10}}, grid);

  // Five rows for eight ranks: some ranks own an empty box, which is always allowed.
  show("H@(data,y,x)", Shape{{'H', 5}, {'W', 4}}, grid);

  // A picture shows which ranks hold which block of an image. Replicas stand together.
  const Layout image = Layout::parse("H@y W@x", Shape{{'N', 5}, {'H', 9}, {'W', 7}}, grid);
  fmt::print("{}\n{}", image.print(), picture(image, 'H', 'W'));

  // The same placement for another shape, as after a pooling layer.
  const Layout pooled = image.onto(Shape{{'N', 5}, {'H', 4}, {'W', 3}});
  fmt::print("pooled to {}: rank 3 owns {}\n", pooled.shape().print(), pooled.owned(3).print());

  // The layout of the gradient of a value: all parts of a pending sum have the same gradient, so it is replicated.
  const Layout sum = Layout::parse("N@data sum@y", Shape{{'N', 5}, {'C', 3}}, grid);
  fmt::print("a value {} has a gradient {}\n", sum.print(), sum.dual().print());
}
