import pytest

from mrtf_fedml.errors import UserError
from mrtf_fedml.models.image_shape import image_shape


def test_the_smallest_image_is_let_through():
    assert image_shape("convnet", [3, 4, 9], smallest_side=4) == (3, 4, 9)


@pytest.mark.parametrize("shape", [(784,), (28, 28), (1, 1, 28, 28)], ids=str)
def test_what_is_no_image_is_refused_by_its_shape(shape):
    with pytest.raises(UserError, match=" x ".join(map(str, shape)) + "; use `model: mlp`"):
        image_shape("convnet", shape, smallest_side=4)


def test_either_side_may_be_too_small():
    for shape in [(1, 3, 8), (1, 8, 3)]:
        with pytest.raises(UserError, match="'lenet' wants images of at least 4 x 4"):
            image_shape("lenet", shape, smallest_side=4)
