"""Derivatives: the cases that are timed beside other packages, at their sizes."""

from bench.peers import autodiff as peers

CASES = {case.name: case for case in peers.cases(quick=False)}


class Derivatives:
    """Values, derivatives and Hessian-vector products."""

    timeout = 300
    params = tuple(CASES)
    param_names = ("case",)

    def setup(self, name):
        """Run each once, outside the timed part."""
        self.case, package = CASES[name], peers.Mercer()
        self.derivative = self.case.prepare(package, self.case.derivative)
        self.derivative()
        if self.case.derivative == "gradient":
            self.product = self.case.prepare(package, "hvp")
            self.product()

    def time_value(self, name):
        self.case.f(peers.Mercer(), self.case.x, *self.case.data)

    def time_derivative(self, name):
        self.derivative()

    def peakmem_derivative(self, name):
        self.derivative()

    def time_product(self, name):
        if self.case.derivative != "gradient":
            raise NotImplementedError
        self.product()
